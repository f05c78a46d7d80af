package gateway_test

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// floodTries is how many connections and requests each makes in the short flood; more than
	// the log keeps records.
	floodTries = 600
	// requestTries is how many requests those make whom auth answers.
	requestTries = 64
	// floodLimit is how many records a second the log may have of one peer.
	floodLimit = 25
	// writeBurst is how much those who have the state written may have of it in a row: 24
	// redemptions, 4 identities and 3 rotations (control/auth/README.md).
	writeBurst = 24 + 4 + 3
	// floodEnv makes the flood last for a time, and has the neighbour's answers timed.
	floodEnv = "POSTERN_FLOOD"
	echoPort = 7000
)

// TestAFloodOfOnePeer lets a peer, a stock peer and the thief of a ticket ask for as much as
// they can at a time. With POSTERN_FLOOD=60s they do so for 60 s, and another peer's requests
// are timed before and meanwhile.
func TestAFloodOfOnePeer(t *testing.T) {
	writes := &writes{}
	w := newWorld(t, func(site string, o *gateway.Options) {
		if site == "cloud" {
			o.State = writes
		}
	})
	w.namedEcho(w.Cloud, "echo", echoPort, echoServer(t))
	// The thief of one ticket tries it once, which nobody may miss; that of another never stops.
	once, thief := stolen(w, "first", "203.0.113.59"), stolen(w, "second", "203.0.113.60")
	redeems := guest(w)
	m := mallory(w, append([]string{"echo"}, both...)...)
	router := stockPeer(w, "router", netip.MustParsePrefix("2001:db8:7::/120"))
	n := neighbour(w)

	lasts, _ := time.ParseDuration(os.Getenv(floodEnv))
	before := n.rounds(w.ctx, lasts/3)
	wrote, start := writes.n.Load(), time.Now()
	f := newFlood(w.ctx, lasts)
	if once(w.ctx) == nil {
		t.Error("a ticket was redeemed twice")
	}
	cloud := peer.OverlayAddr(siteKey(w.Cloud))
	asMallory, asRouter, csr := m.client(w.Cloud), router.client(w.Cloud), signingRequest(t, pkix.Name{})
	f.run(16, floodTries, func(ctx context.Context) { m.knock(ctx, cloud, echoPort) })
	f.run(4, requestTries, func(ctx context.Context) { _, _ = asMallory.Identity(ctx, []byte("none")) })
	f.run(8, floodTries, func(ctx context.Context) { _, _ = asRouter.Hello(ctx) })
	f.run(8, floodTries, func(ctx context.Context) { router.knock(ctx, cloud, api.PortAPIServer) })
	f.run(2, requestTries, func(ctx context.Context) { _ = thief(ctx) })
	// What is in order, and has to be stored.
	var redeemed, issued, rotated atomic.Int64
	f.run(2, 3*requestTries, func(ctx context.Context) {
		if redeems(ctx) == nil {
			redeemed.Add(1)
		}
	})
	f.run(1, requestTries, func(ctx context.Context) {
		if _, err := asMallory.Identity(ctx, csr); err == nil {
			issued.Add(1)
		}
	})
	f.run(1, requestTries, func(ctx context.Context) {
		next := newKey(t)
		proof, err := auth.RotationProof(next, siteKey(w.Cloud), m.key.Public(), next.Public(), peer.PresharedKey{})
		if err == nil && asMallory.Rotate(ctx, auth.Announcement{Next: next.Public(), Proof: proof}) == nil {
			rotated.Add(1)
		}
	})
	during := n.rounds(w.ctx, lasts)
	f.wait()
	took := time.Since(start)

	// The refusals name what the thief calls itself, the alarms the peer that has joined.
	for _, who := range [][]string{{"mallory"}, {"router"}, {"thief", "second"}, {"guest"}} {
		most, all := w.log.busiest("cloud", start, who...)
		t.Logf("%s: %d records in %s, at most %d in a second", who, all, took.Round(time.Millisecond), most)
		if most > floodLimit {
			t.Errorf("%d records of %s were logged in a second, want at most %d", most, who, floodLimit)
		}
	}
	stored := writes.n.Load() - wrote
	t.Logf("tries: %d; redeemed: %d; identities: %d; rotations: %d; state writes: %d",
		f.tries.Load(), redeemed.Load(), issued.Load(), rotated.Load(), stored)
	if most := int64(took/time.Second) + 1 + writeBurst; stored > most {
		t.Errorf("the state was written %d times in %s, want at most %d", stored, took, most)
	}
	if stored < redeemed.Load() || redeemed.Load() == 0 {
		t.Errorf("the state was written %d times, and %d redemptions should have been: this shows nothing", stored, redeemed.Load())
	}
	if lasts > 0 {
		was, is := p99(before), p99(during)
		t.Logf("the neighbour's requests: p50 %s, p99 %s before (%d), p50 %s, p99 %s meanwhile (%d)",
			p50(before), was, len(before), p50(during), is, len(during))
		if is > 2*was {
			t.Errorf("the neighbour's p99 was %s before and %s meanwhile, want at most twice of it", was, is)
		}
	}
	log, err := w.Cloud.Gateway.Log(w.ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if raised := raisedBy(log.Alarms, "first"); raised == nil || raised.Count != 1 {
		t.Errorf("the alarm that was raised once is %+v", raised)
	}
	if raised := raisedBy(log.Alarms, "second"); raised == nil {
		t.Errorf("the alarm that was raised again and again is %+v", raised)
	}
}

// raisedBy is the alarm of the ticket that a peer joined by.
func raisedBy(alarms []api.Alarm, peer string) *api.Alarm {
	for _, a := range alarms {
		if a.Code == audit.CodeTicketAlarm && slices.Contains(a.Attrs, api.LogAttr{Key: audit.KeyPeer, Value: peer}) {
			return &a
		}
	}
	return nil
}

// stolen is somebody with a ticket that has been redeemed under a name, whose owner has yet to
// come: until then the ticket's tunnel stays. It tries the ticket for another key each time.
func stolen(w *world, name, address string) (try func(context.Context) error) {
	w.t.Helper()
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	thief := redeemer(w, w.host("thief of "+name, address), text).client(w.Cloud)
	if _, err := thief.Redeem(w.ctx, w.request(text, newKey(w.t), name)); err != nil {
		w.t.Fatal(err)
	}
	return func(ctx context.Context) error {
		_, err := thief.Redeem(ctx, w.request(text, newKey(w.t), "thief"))
		return err
	}
}

// guest is somebody who redeems a ticket again and again for the same key, with another address
// each time.
func guest(w *world) (redeem func(context.Context) error) {
	w.t.Helper()
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	client, key := redeemer(w, w.host("guest", "203.0.113.67"), text).client(w.Cloud), newKey(w.t)
	var tries atomic.Uint32
	return func(ctx context.Context) error {
		addr := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.67"), uint16(1000+tries.Add(1)%50_000))
		_, err := client.Redeem(ctx, w.prove(ticket.InBand, text, key, ticket.Request{Name: "guest", Candidates: []ticket.Candidate{{Addr: addr, Source: "host"}}}))
		return err
	}
}

// flood is many who ask at once, until each has had its tries or its time is over.
type flood struct {
	ctx   context.Context
	stop  context.CancelFunc
	lasts bool
	wg    sync.WaitGroup
	tries atomic.Int64
}

func newFlood(ctx context.Context, lasts time.Duration) *flood {
	f := &flood{lasts: lasts > 0}
	if f.lasts {
		f.ctx, f.stop = context.WithTimeout(ctx, lasts)
	} else {
		f.ctx, f.stop = context.WithCancel(ctx)
	}
	return f
}

// run has so many do something again and again.
func (f *flood) run(workers, tries int, do func(ctx context.Context)) {
	for range workers {
		f.wg.Go(func() {
			for n := 0; f.ctx.Err() == nil && (f.lasts || n < tries/workers); n++ {
				ctx, cancel := context.WithCancel(f.ctx)
				do(ctx)
				cancel()
				f.tries.Add(1)
			}
		})
	}
}

func (f *flood) wait() {
	f.wg.Wait()
	f.stop()
}

// knock connects to a port of cloud's and goes away.
func (s *stranger) knock(ctx context.Context, cloud netip.Addr, port uint16) {
	c, err := s.stack.DialTCP(ctx, netip.AddrPortFrom(cloud, port))
	if err != nil {
		return
	}
	c.Abort()
}

// stockPeer is a plain WireGuard peer of cloud with addresses of its own.
func stockPeer(w *world, name string, network netip.Prefix) *stranger {
	w.t.Helper()
	key := newKey(w.t)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{
		Peer: api.Peer{Name: name, PublicKey: key.Public().String(), Stock: true, AllowedIPs: []string{network.String()}},
	}); err != nil {
		w.t.Fatal(err)
	}
	return newStrangerWith(w.t, w.host(name, "203.0.113.61"), key, netstack.Options{Addresses: []netip.Addr{network.Addr().Next()}},
		peer.Config{Name: "cloud", PublicKey: siteKey(w.Cloud), Endpoints: []netip.AddrPort{endpoint(w.Cloud)}})
}

// neighbourly is a peer that asks for no more than it needs.
type neighbourly struct {
	*stranger
	w     *world
	cloud netip.Addr
}

func neighbour(w *world) neighbourly {
	w.t.Helper()
	key := newKey(w.t)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{
		Peer: api.Peer{Name: "nell", PublicKey: key.Public().String(), Allow: []string{"echo"}},
	}); err != nil {
		w.t.Fatal(err)
	}
	return neighbourly{newStranger(w.t, w.host("nell", "203.0.113.62"), key,
		peer.Config{Name: "cloud", PublicKey: siteKey(w.Cloud), Endpoints: []netip.AddrPort{endpoint(w.Cloud)}}), w, peer.OverlayAddr(siteKey(w.Cloud))}
}

// rounds times requests, each with a connection of its own, for so long, and ten at least.
func (n neighbourly) rounds(ctx context.Context, lasts time.Duration) []time.Duration {
	n.w.t.Helper()
	var took []time.Duration
	pace := time.NewTicker(40 * time.Millisecond)
	defer pace.Stop()
	for start := time.Now(); len(took) < 10 || time.Since(start) < lasts; <-pace.C {
		began := time.Now()
		if err := n.ask(ctx); err != nil {
			n.w.t.Errorf("the neighbour's request failed: %v", err)
			return append(took, time.Since(began))
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}

func (n neighbourly) ask(ctx context.Context) error {
	c, err := n.stack.DialTCP(ctx, netip.AddrPortFrom(n.cloud, echoPort))
	if err != nil {
		return err
	}
	defer c.Close()
	text := []byte("who is there?")
	if _, err := c.Write(text); err != nil {
		return err
	}
	_, err = io.ReadFull(c, text)
	return err
}

func p50(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2].Round(time.Microsecond) }
func p99(sorted []time.Duration) time.Duration {
	return sorted[len(sorted)*99/100].Round(time.Microsecond)
}

// busiest is how many records of a site name one of these, in the worst second and in all; what is
// of level debug does not count.
func (r *record) busiest(site string, since time.Time, who ...string) (most, all int) {
	seconds := map[int64]int{}
	for line := range strings.Lines(r.String()) {
		var e struct {
			Time                 time.Time
			Level, Gateway, Peer string
		}
		if json.Unmarshal([]byte(line), &e) != nil || e.Level == "DEBUG" || e.Gateway != site || !slices.Contains(who, e.Peer) || e.Time.Before(since) {
			continue
		}
		all++
		seconds[e.Time.Unix()]++
		most = max(most, seconds[e.Time.Unix()])
	}
	return most, all
}

// writes counts those of a state that is kept nowhere.
type writes struct{ n atomic.Int64 }

func (*writes) Load(context.Context) (map[string][]byte, error) { return nil, nil }

func (w *writes) Save(context.Context, string, []byte) error {
	w.n.Add(1)
	return nil
}
