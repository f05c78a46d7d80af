package ticket

import (
	"errors"
	"testing"
	"time"
)

func TestARevokedTicketIsExpiredAndNobodyRedeemsIt(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	_, other := d.invite(noon, standard())
	later := noon.Add(time.Minute)
	if err := d.Revoke(later, keys.ID); err != nil {
		t.Fatal(err)
	}
	drop, err := d.Expire(later)
	if err != nil || len(drop) != 1 || drop[0] != keys.OneTime.Public() {
		t.Errorf("got %v, %v; want the revoked ticket's one-time key to be dropped", drop, err)
	}
	var expired *ExpiredError
	if _, err := d.Accept(later, d.reply(keys, ask(1, "edge"))); !errors.As(err, &expired) || d.Alarms() != 0 {
		t.Errorf("a reply to it: got %v and %d alarms, want that it has expired", err, d.Alarms())
	}
	d.reopen(later)
	d.mustRedeem(later, other, ask(2, "cloud"))
	for i, want := range []Standing{{Info: Info{State: Expired}}, {Info: Info{State: Redeemed}, Peer: "cloud", RedeemedBy: key(2)}} {
		if got := d.Standings()[i]; got.State != want.State || got.Peer != want.Peer || got.RedeemedBy != want.RedeemedBy {
			t.Errorf("ticket %d: got %+v, want %+v", i, got, want)
		}
	}
	// A redeemed ticket stays, and an unknown one is ignored.
	for _, id := range []ID{other.ID, {9}} {
		if err := d.Revoke(later, id); err != nil {
			t.Error(err)
		}
	}
	if got := d.Standings()[1].State; got != Redeemed {
		t.Errorf("a redeemed ticket was revoked: %s", got)
	}
}
