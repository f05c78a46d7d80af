//go:build linux && e2e

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestSecondRedemptionIsRefused(t *testing.T) {
	w := newWorld(t)
	p := newPair(t, w)
	thief := newGateway(t, w.third, "thief").start()
	text := p.cloud.invite()
	p.edge.must("join", text)
	p.cloud.waitConnected("edge")

	r := thief.postern(within(t, patience), "join", text)
	checkRefusal(t, "join", lastLine(r), 1, "already used")
	p.cloud.waitLog("audit", "alarm")
	if n, _ := p.cloud.metric("postern_ticket_alarms_total"); n < 1 {
		t.Errorf("postern_ticket_alarms_total is %v, want at least 1", n)
	}
	if _, found := p.cloud.peer("thief"); found {
		t.Error("cloud has the thief for a peer")
	}
	p.cloud.waitConnected("edge")

	// The redeemer may ask again, and gets the same answer until cloud has noted the first
	// handshake.
	if r := p.edge.postern(within(t, patience), "join", text); r.code != 0 {
		checkRefusal(t, "join again", lastLine(r), 1, "already used", "with this key")
	}
	if n := len(p.cloud.status().Peers); n != 1 {
		t.Errorf("cloud has %d peers, want edge alone", n)
	}
}

// TestGatewaysRaceForATicket lets five gateways redeem one ticket at the same time.
func TestGatewaysRaceForATicket(t *testing.T) {
	t.Parallel()
	const joiners = 5
	w := newWorld(t)
	cloud := newGateway(t, w.cloud, "cloud").start()
	var gateways []*gateway
	for i := range joiners {
		name := fmt.Sprintf("joiner-%d", i)
		h := w.lab.Host(name)
		h.Attach("eth0", w.wan, netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + i)}))
		g := newGateway(t, h, name)
		g.launch()
		gateways = append(gateways, g)
	}
	for _, g := range gateways {
		g.waitReady()
	}
	text := cloud.invite()
	results := make([]result, joiners)
	var wg sync.WaitGroup
	for i, g := range gateways {
		wg.Go(func() { results[i] = g.postern(within(t, 2*patience), "join", text, "--wait", "60s") })
	}
	wg.Wait()
	winners := 0
	for i, r := range results {
		switch {
		case r.code == 0:
			winners++
		case r.code != 1 || !strings.Contains(r.stderr, "already used"):
			t.Errorf("joiner-%d: exit code %d, %q; want 1 and \"already used\"", i, r.code, r.stderr)
		}
	}
	if peers := cloud.status().Peers; winners != 1 || len(peers) != 1 {
		t.Errorf("%d joins succeeded and cloud has %d peers, want one", winners, len(peers))
	}
	if n, _ := cloud.metric("postern_ticket_alarms_total"); n < joiners-1 {
		t.Errorf("postern_ticket_alarms_total is %v, want at least %d", n, joiners-1)
	}
}

// TestUnusableTicketsSayWhy gives each kind of unusable text its own message.
func TestUnusableTicketsSayWhy(t *testing.T) {
	t.Parallel()
	p := newPair(t, newWorld(t))
	text := p.cloud.invite()
	damaged := []byte(text)
	damaged[len(damaged)/2] = map[bool]byte{true: 'b', false: 'a'}[damaged[len(damaged)/2] == 'a']
	short := p.cloud.invite("--ttl", "5s")
	waitExpired(t, short)

	for _, c := range []struct {
		name, text, word string
	}{
		{"foreign", "eyJhbGciOiJIUzI1NiJ9", "not a postern ticket"},
		{"damaged", string(damaged), "damaged"},
		{"truncated", text[:len(text)-9], "a part of the ticket is missing"},
		{"expired", short, "expired"},
		// Only the maker knows who made a ticket; a joiner cannot be its own peer.
	} {
		t.Run(c.name, func(t *testing.T) {
			r := p.edge.posternIn(within(t, patience), c.text+"\n", "join", "-")
			if r.code == 0 {
				t.Fatalf("join succeeded: %s", r.stdout)
			}
			checkRefusal(t, "join", lastLine(r), r.code, c.word)
			if c.name != "foreign" && strings.Contains(r.stderr, c.text) {
				t.Error("the message shows the ticket, which is a secret")
			}
		})
	}
	if n := len(p.edge.status().Peers); n != 0 {
		t.Errorf("edge has %d peers after refused joins", n)
	}
}

// waitExpired waits until a ticket has expired.
func waitExpired(t *testing.T, text string) {
	t.Helper()
	tk, err := ticket.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(tk.Expires) + 100*time.Millisecond)
}

// prolong adds an hour to a ticket, as its holder may: the checksum is no signature. Only the
// inviter's own records can refuse it.
func prolong(t *testing.T, text string) string {
	t.Helper()
	tk, err := ticket.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	tk.Expires = tk.Expires.Add(time.Hour)
	later, err := tk.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return later
}

func TestDeadlinesHoldAcrossARestart(t *testing.T) {
	t.Parallel()
	p := newPair(t, newWorld(t))
	short, long := p.cloud.invite("--ttl", "5s"), p.cloud.invite("--ttl", "1h")
	p.cloud.stop(syscall.SIGKILL)
	waitExpired(t, short)
	p.cloud.start()

	r := p.edge.postern(within(t, patience), "join", prolong(t, short), "--wait", "4s")
	if r.code != 1 {
		t.Errorf("join with an expired ticket, its deadline forged: exit code %d, want 1\n%s%s", r.code, r.stdout, r.stderr)
	}
	// A join without an answer prints a reply, which must not help either.
	if fields := strings.Fields(r.stdout); len(fields) == 3 {
		p.cloud.refused(1, []string{"expired"}, "accept", fields[2])
	}
	if peers := p.cloud.status().Peers; len(peers) != 0 {
		t.Errorf("cloud has peers %+v, want none", peers)
	}
	p.edge.must("join", long)
	p.cloud.waitConnected("edge")
}

// TestForgedRepliesAreRefused makes replies with the product's own codec and the wrong keys or
// requests.
func TestForgedRepliesAreRefused(t *testing.T) {
	w := newWorld(t)
	cloud := newGateway(t, w.cloud, "cloud", offerBlob).start()
	other := newGateway(t, w.third, "other").start()
	keys := ticketKeys(t, cloud.invite("--allow", "auth"))
	forged := ticketKeys(t, other.invite("--allow", "auth"))
	foreign := forged
	forged.ID = keys.ID

	mallory := newKey(t)
	request := ticket.Request{PublicKey: mallory.Public(), Name: "mallory"}
	greedy := request
	greedy.Wants = []string{"auth", blobService}
	for _, c := range []struct {
		name    string
		keys    ticket.Keys
		request ticket.Request
		word    string
	}{
		{"made without the ticket", forged, request, "forged"},
		{"to another gateway's ticket", foreign, request, "no such ticket"},
		{"that asks for more than was granted", keys, greedy, "not grant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inviter, err := peer.ParsePublicKey(cloud.status().Gateway.PublicKey)
			if err != nil {
				t.Fatal(err)
			}
			q, err := c.request.Prove(ticket.ByReply, c.keys.ID, inviter, mallory)
			if err != nil {
				t.Fatal(err)
			}
			reply, err := ticket.EncodeReply(c.keys, q)
			if err != nil {
				t.Fatal(err)
			}
			r := cloud.posternIn(within(t, patience), reply, "accept", "-")
			checkRefusal(t, "accept", r, 1, c.word)
		})
	}
	cloud.waitLog("audit", "refuse")
	if peers := cloud.status().Peers; len(peers) != 0 {
		t.Errorf("cloud has peers %+v after forged replies, want none", peers)
	}
}

func ticketKeys(t *testing.T, text string) ticket.Keys {
	t.Helper()
	tk, err := ticket.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := tk.Keys()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
