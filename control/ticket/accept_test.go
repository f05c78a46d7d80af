package ticket

import (
	"errors"
	"slices"
	"testing"

	"github.com/postern-dev/postern/control/audit"
)

func TestAccept(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	want, err := keys.Peer.PeerKey(self, key(1))
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.Accept(noon, d.reply(keys, ask(1, "edge")))
	if err != nil {
		t.Fatal(err)
	}
	if !g.PresharedKey.Equal(want) {
		t.Error("the preshared key is not the one that the joiner derives")
	}
	if again := d.mustRedeem(noon, keys, ask(1, "edge")); !again.PresharedKey.Equal(want) {
		t.Error("redeeming after all gives another preshared key than the reply")
	}
	if got := d.log.events(); !slices.Equal(got, []string{"invite", "accept"}) {
		t.Errorf("audit: got %v", got)
	}
}

func TestAReplyReplacesAnAnswerThatWasLost(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	d.mustRedeem(noon, keys, ask(1, "edge")) // the joiner never sees this
	want, err := keys.Peer.PeerKey(self, key(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		g, err := d.Accept(noon, d.reply(keys, ask(1, "edge")))
		if err != nil || !g.PresharedKey.Equal(want) {
			t.Errorf("got %v, %v; want the key that follows from the ticket", g, err)
		}
	}
}

func TestAForgedReplyIsRefused(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	forged := keys
	forged.Reply = Key{b: [32]byte{1}}
	for range MaxFailures + 1 { // knowing an id must not be enough to burn a ticket
		if _, err := d.Accept(noon, d.reply(forged, ask(2, "thief"))); !errors.Is(err, ErrForged) {
			t.Fatalf("got %v, want %v", err, ErrForged)
		}
	}
	foreign := keys
	foreign.ID = ID{1}
	if _, err := d.Accept(noon, d.reply(foreign, ask(2, "thief"))); !errors.Is(err, ErrUnknown) {
		t.Errorf("another gateway's ticket: got %v, want %v", err, ErrUnknown)
	}
	if n := count(d.log.events(), audit.Refuse); n != MaxFailures+2 {
		t.Errorf("%d refusals were recorded, want %d", n, MaxFailures+2)
	}
	if _, err := d.Accept(noon, d.reply(keys, ask(1, "edge"))); err != nil {
		t.Errorf("the real reply: %v", err)
	}
}
