package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
)

// streaming has edge join cloud and opens a stream between them, from edge to cloud.
func (w *world) streaming() *stream {
	w.t.Helper()
	w.namedEcho(w.Cloud, "echo", 7000, echoServer(w.t))
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: append([]string{"echo"}, both...)}),
		api.JoinRequest{Allow: both, Local: map[string]string{"echo": "127.0.0.1:0"}})
	w.connected(w.Cloud, w.Edge)
	return w.open(w.localAddress(w.Edge, "cloud", "echo"))
}

func TestARestartOfEitherSideIsSurvived(t *testing.T) {
	for _, c := range []struct {
		name string
		site func(*world) *lab.Site
		busy bool
	}{
		{"the one that waits, idle", func(w *world) *lab.Site { return w.Cloud }, false},
		{"the one that waits, busy", func(w *world) *lab.Site { return w.Cloud }, true},
		{"the one that dials, idle", func(w *world) *lab.Site { return w.Edge }, false},
		{"the one that dials, busy", func(w *world) *lab.Site { return w.Edge }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			site, other := c.site(w), w.Edge
			if site == w.Edge {
				other = w.Cloud
			}
			var s *stream
			if c.busy {
				s = w.streaming()
			} else {
				w.peer()
			}
			// The restarted side must know where the other was heard last.
			w.awaitPeer(site, other.Name, pathRecorded(1))
			w.stop(site)
			if c.busy { // those at the other side need not find out by themselves
				s.resetWithin(removal)
			}
			w.start(site)
			w.reach(site, other)
			if c.busy {
				w.open(w.localAddress(w.Edge, "cloud", "echo"))
			}
			w.connected(site, other)
		})
	}
}

func TestARebootOfTheNATIsSurvived(t *testing.T) {
	w := newWorld(t)
	s := w.streaming()
	w.NAT.Reboot()
	w.reach(w.Edge, w.Cloud)
	if err := s.echo("after the reboot"); err != nil {
		t.Errorf("the stream did not survive: %v", err)
	}
}

func TestAnotherAddressOfTheNATIsSurvived(t *testing.T) {
	w := newWorld(t)
	s := w.streaming()
	w.awaitPeer(w.Cloud, "edge", pathRecorded(1))
	next := netip.MustParseAddr("198.51.100.99")
	if err := w.NAT.SetAddrs(next); err != nil {
		t.Fatal(err)
	}
	w.reach(w.Edge, w.Cloud)
	if err := s.echo("from elsewhere"); err != nil {
		t.Errorf("the stream did not survive: %v", err)
	}
	w.awaitPeer(w.Cloud, "edge", func(p api.PeerStatus) string {
		// Packets from there tell of it first, unless the machine is so busy that a server is faster.
		if !strings.HasPrefix(p.Path.Remote, next.String()) || p.Path.Source != api.SourcePeer && p.Path.Source != api.SourceSTUN {
			return fmt.Sprintf("the path is to %s (%s), want %s", p.Path.Remote, p.Path.Source, next)
		}
		told := slices.ContainsFunc(p.Path.History, func(e api.PathEvent) bool {
			return strings.HasPrefix(e.Event, next.String()) && e.Reason == p.Path.Reason
		})
		if !told {
			return fmt.Sprintf("the history %+v does not tell of the change of address, for which the reason is %q", p.Path.History, p.Path.Reason)
		}
		return ""
	})
}

// pathRecorded wants a path with at least so many changes.
func pathRecorded(changes int) func(api.PeerStatus) string {
	return func(p api.PeerStatus) string {
		if n := len(p.Path.History); n < changes {
			return fmt.Sprintf("%d changes of the path are recorded, want %d", n, changes)
		}
		return ""
	}
}

func TestALongOutageIsSurvived(t *testing.T) {
	w := newWorld(t)
	w.peer()
	w.NAT.Link().SetDown(true)
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	if r, err := w.Edge.Gateway.Ping(ctx, "cloud", api.PingRequest{Layer: "overlay"}); err != nil || r.Error == "" {
		t.Fatalf("the line is cut and cloud answers: %+v, %v", r, err)
	}
	// Something is sent for six seconds, so that both sides find each other silent.
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if _, err := w.Edge.Gateway.Ping(ctx, "cloud", api.PingRequest{Layer: "overlay"}); err != nil {
			return err.Error()
		}
		if p.NextTry == nil {
			return "edge does not dial"
		}
		return ""
	})
	w.NAT.Link().SetDown(false)
	w.reach(w.Edge, w.Cloud)
}

func TestPeersWithKnownKeysNeedNoTicket(t *testing.T) {
	w := newWorld(t)
	psk := "h0E7z6rFzRBk2yqg8Qw0m2c5mX0s5dGJ9Z1qWg7b3nA="
	cloud := api.Peer{Name: "cloud", PublicKey: siteKey(w.Cloud).String(), Allow: both, Endpoints: []string{endpoint(w.Cloud).String()}}
	edge := api.Peer{Name: "edge", PublicKey: siteKey(w.Edge).String(), Allow: both}
	if err := w.Edge.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: cloud, PresharedKey: psk}); err != nil {
		t.Fatal(err)
	}
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: edge, PresharedKey: psk}); err != nil {
		t.Fatal(err)
	}
	w.connected(w.Cloud, w.Edge)
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
	if strings.Contains(w.log.String(), psk) {
		t.Error("the preshared key is logged")
	}
	// Once more replaces it, and does no harm.
	if err := w.Edge.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: cloud, PresharedKey: psk}); err != nil {
		t.Fatal(err)
	}
	w.reach(w.Edge, w.Cloud)
}

func TestClosingLetsStreamsFinish(t *testing.T) {
	w := newWorld(t)
	s := w.streaming()
	address := w.localAddress(w.Edge, "cloud", "echo")
	// The stream always carries something. Who waits for one echo after the other looks stalled on a
	// busy machine, and is reset.
	var running sync.WaitGroup
	var echoed atomic.Int64
	ended := make(chan error, 1)
	running.Go(func() {
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for n := 0; ; n++ {
			if _, err := s.Write([]byte{byte(n)}); err != nil {
				return
			}
			<-pace.C
		}
	})
	running.Go(func() {
		b := make([]byte, 1)
		for n := 0; ; n++ {
			if _, err := io.ReadFull(s, b); err != nil {
				ended <- err
				return
			}
			if b[0] != byte(n) {
				t.Errorf("byte %d comes back as %d", n, b[0])
			}
			echoed.Add(1)
		}
	})
	defer running.Wait()
	defer s.Close()
	done := make(chan error, 1)
	site := w.Edge
	go func() { done <- site.Stop(w.ctx) }()
	w.await("edge takes no new connections", func() string {
		c, err := dial(w.ctx, address)
		if err == nil {
			c.Close()
			return "it does"
		}
		return ""
	})
	before := echoed.Load()
	w.await("the stream goes on while edge drains", func() string {
		select {
		case err := <-ended:
			t.Fatalf("the stream has ended: %v", err)
		default:
		}
		if echoed.Load() == before {
			return "nothing comes back"
		}
		return ""
	})
	select {
	case err := <-done:
		t.Errorf("closing did not wait for the stream: %v", err)
	default:
	}
	s.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClosingEndsWhatIsUnderWay(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Edge, api.InviteRequest{Allow: both}) // cannot be reached
	done := make(chan error, 1)
	g := w.Cloud.Gateway
	go func() {
		_, err := g.Join(context.Background(), api.JoinRequest{Ticket: text, Wait: api.Duration(patience.Left())})
		done <- err
	}()
	w.await("the join is under way", func() string {
		if strings.Contains(w.log.String(), `"peer":"inviter"`) {
			return ""
		}
		return "nothing is dialled"
	})
	w.stop(w.Cloud)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("the join ended with %v", err)
	}
	// A closed gateway answers, and changes nothing.
	if _, err := g.Status(w.ctx); err != nil {
		t.Error(err)
	}
	w.refused("inviting", errOf(g.Invite(w.ctx, api.InviteRequest{})), false, "stopping")
	w.refused("adding a peer", g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "p", PublicKey: newKey(t).Public().String()}}), false, "stopping")
	if err := g.Reload(w.ctx); err == nil {
		t.Error("a closed gateway was configured")
	}
	if err := g.Close(w.ctx); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	w.start(w.Cloud)
	if _, there := w.status(w.Cloud, "edge"); there {
		t.Error("a join that was cut off left a peer")
	}
}

func errOf[T any](_ T, err error) error { return err }
