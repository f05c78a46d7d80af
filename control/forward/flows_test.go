package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
)

func TestAPeerAtItsFlowLimitDoesNotStarveAnother(t *testing.T) {
	address, conns := upstream(t)
	g := newGateway(t, Limits{PeerFlows: 3}, nil)
	g.offer(address)
	var open []*net.TCPConn
	for range 3 {
		open = append(open, g.dial(cloudAddr, 6443).conn())
	}
	if !g.dial(cloudAddr, 6443).wasRefused() {
		t.Error("a fourth connection of cloud was accepted")
	}
	other := g.dial(otherAddr, 6443).conn()
	send(t, other, "x")
	for range 4 {
		take(t, conns)
	}
	eventually(t, "the warning", func() bool { return strings.Contains(g.log.String(), "code=PST0801") })

	abort(open[0])
	eventually(t, "the end of a connection", func() bool { return g.flows.Count()[DirectionInbound] == 3 })
	if g.dial(cloudAddr, 6443).wasRefused() {
		t.Error("a connection was refused although there is room again")
	}
}

func TestHalfOpenConnectionsAreLimitedApart(t *testing.T) {
	t.Run("while the upstream is dialled", func(t *testing.T) {
		block := make(chan struct{})
		address, _ := upstream(t)
		g := newGateway(t, Limits{HalfOpen: 2}, func(ctx context.Context, a string) (Conn, error) {
			if a == "slow:1" {
				<-block
				return nil, errors.New("gave up")
			}
			return DialUpstream(ctx, a)
		})
		services := []Service{{Name: api.ServiceAPIServer, Ports: api.PortsOf(6443), Upstream: "slow:1"},
			{Name: "registry", Ports: api.PortsOf(5000), Upstream: address}}
		if err := g.in.SetServices(services); err != nil {
			t.Fatal(err)
		}
		first, second := g.start(cloudAddr, 6443), g.start(cloudAddr, 6443)
		eventually(t, "two dials", func() bool { return g.flows.Count()[DirectionInbound] == 2 })
		if !g.dial(cloudAddr, 5000).wasRefused() {
			t.Error("a third half-open connection was admitted")
		}
		if g.dial(otherAddr, 80); g.in.Counters().Refused[PeerHalfOpenLimit] != 1 {
			t.Error("the limit of cloud was applied to another peer")
		}
		close(block)
		if !first.wasRefused() || !second.wasRefused() {
			t.Error("a connection was accepted without an upstream")
		}
		eventually(t, "room", func() bool { return g.flows.Count()[DirectionInbound] == 0 })
		if g.dial(cloudAddr, 5000).wasRefused() {
			t.Error("refused although there is room again")
		}
	})
	t.Run("while the peer leaves the handshake unfinished", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := &stalled{closed: make(chan struct{})}
			g := newGateway(t, Limits{HalfOpen: 1}, func(context.Context, string) (Conn, error) { return up, nil })
			g.offer("api:6443")
			s := &syn{t: t, remote: addrPort(cloudAddr, 40000), local: addrPort(ownAddr, 6443), never: true,
				accepted: make(chan *net.TCPConn, 1), refused: make(chan struct{})}
			g.wg.Go(func() { g.in.Handle(s) })
			synctest.Wait()
			if !g.dial(cloudAddr, 6443).wasRefused() {
				t.Error("a second half-open connection was admitted")
			}
			start := time.Now()
			<-up.closed
			if took := time.Since(start); took != handshakeTimeout {
				t.Errorf("given up after %s, want %s", took, handshakeTimeout)
			}
			g.wg.Wait()
			if n := g.in.Counters().Refused[HandshakeFailed]; n != 1 {
				t.Errorf("counted %d failed handshakes, want 1", n)
			}
		})
	})
}

func TestTotalLimitLeavesEachPeerItsReserve(t *testing.T) {
	address, _ := upstream(t)
	g := newGateway(t, Limits{Total: 4, Reserve: 2}, nil)
	g.offer(address)
	count := func(from netip.Addr) (n int) {
		for range 8 {
			if !g.dial(from, 6443).wasRefused() {
				n++
			}
		}
		return n
	}
	if n := count(cloudAddr); n != 4 {
		t.Errorf("cloud got %d connections of a total of 4", n)
	}
	if n := count(otherAddr); n != 2 {
		t.Errorf("other got %d connections, want its reserve of 2", n)
	}
	eventually(t, "the warning", func() bool { return strings.Contains(g.log.String(), "code=PST0803") })
}

func TestRemovalOfAPeerEndsItsFlows(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	peer, up := carried(t, g)
	send(t, peer, "x")
	wantRead(t, up, "x")

	g.mu.Lock()
	delete(g.peers, cloudAddr)
	g.mu.Unlock()
	if n := g.flows.ClosePeer("cloud"); n != 1 {
		t.Errorf("ended %d flows, want 1", n)
	}
	wantReset(t, peer)
	wantReset(t, up)
	g.wg.Wait()
	if !g.dial(cloudAddr, 6443).wasRefused() {
		t.Error("a removed peer was let in")
	}
}

func TestRemovalAlsoEndsWhatIsBeingOpened(t *testing.T) {
	dialling := make(chan struct{})
	g := newGateway(t, Limits{}, func(ctx context.Context, _ string) (Conn, error) {
		close(dialling)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	g.offer("slow:1")
	s := g.start(cloudAddr, 6443)
	<-dialling
	g.flows.ClosePeer("cloud")
	if !s.wasRefused() {
		t.Error("a connection of a removed peer was accepted")
	}
	g.wg.Wait()
	if strings.Contains(g.log.String(), "PST031") {
		t.Errorf("the upstream was blamed for a removal:\n%s", g.log)
	}
}

func TestRevokedGrantEndsTheFlowsOfThatServiceOnly(t *testing.T) {
	address, conns := upstream(t)
	g := newGateway(t, Limits{}, nil)
	g.offer(address)
	apiServer := g.dial(cloudAddr, 6443).conn()
	up := take(t, conns)
	registry := g.dial(cloudAddr, 5000).conn()
	take(t, conns)
	g.mu.Lock()
	g.allow["cloud"] = []string{api.ServiceAPIServer}
	g.mu.Unlock()
	g.in.Reauthorize()
	wantReset(t, registry)
	send(t, apiServer, "still open")
	wantRead(t, up, "still open")
	if !g.dial(cloudAddr, 5000).wasRefused() {
		t.Error("a revoked service was reached")
	}
}

func TestGrantRevokedBetweenLookUpAndEntryIsNoticed(t *testing.T) {
	asked := 0
	flows := NewFlows(Limits{})
	in := NewInbound(flows, InboundOptions{
		Resolve: func(netip.Addr) (Peer, bool) { return Peer{Name: "cloud"}, true },
		Allowed: func(Peer, string) bool { asked++; return asked == 1 },
		Dial: func(context.Context, string) (Conn, error) {
			t.Error("the upstream was dialled")
			return nil, errors.New("no")
		},
	})
	if err := in.SetServices([]Service{{Name: "a", Ports: api.PortsOf(1), Upstream: "x:1"}}); err != nil {
		t.Fatal(err)
	}
	s := &syn{t: t, remote: addrPort(cloudAddr, 1), local: addrPort(ownAddr, 1),
		accepted: make(chan *net.TCPConn, 1), refused: make(chan struct{})}
	in.Handle(s)
	if !s.wasRefused() || in.Counters().Refused[NotGranted] != 1 {
		t.Errorf("counted %v", in.Counters())
	}
}

func TestDrainWaitsForFlowsAndThenCutsThem(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	g.flows.drainIdle = time.Hour
	peer, up := carried(t, g)
	drained := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { drained <- g.flows.Drain(ctx) }()
	eventually(t, "refusal of new connections", func() bool { return g.dial(cloudAddr, 6443).wasRefused() })
	send(t, peer, "still open")
	wantRead(t, up, "still open")
	select {
	case err := <-drained:
		t.Fatalf("drained with an open flow: %v", err)
	default:
	}
	cancel()
	wantReset(t, peer)
	wantReset(t, up)
	if err := <-drained; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
}

func TestDrainEndsWithTheLastFlow(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	peer, up := carried(t, g)
	drained := make(chan error, 1)
	go func() { drained <- g.flows.Drain(context.Background()) }()
	peer.Close()
	up.Close()
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

func TestDrainDoesNotWaitForFlowsOnWhichNothingMoves(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	address, conns := upstream(t)
	g.offer(address)
	watch := g.dial(cloudAddr, 6443).conn()
	take(t, conns)
	busy := g.dial(cloudAddr, 6443).conn()
	up := take(t, conns)
	cut := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, watch)
		cut <- err
	}()
	drained := make(chan error, 1)
	go func() { drained <- g.flows.Drain(context.Background()) }()
	for moving := true; moving; {
		send(t, busy, "still moving")
		wantRead(t, up, "still moving")
		select {
		case err := <-cut:
			if !isReset(err) {
				t.Errorf("the watch ended with %v, want a reset", err)
			}
			moving = false
		default:
		}
	}
	busy.Close()
	up.Close()
	if err := <-drained; !errors.Is(err, ErrIdle) || !strings.Contains(err.Error(), "1 connections") {
		t.Errorf("got %v, want one connection to be %v", err, ErrIdle)
	}
}

func TestThousandShortFlowsLeaveNothing(t *testing.T) {
	address, conns := upstream(t)
	g := newGateway(t, Limits{PeerBurst: 1000}, nil)
	g.offer(address)
	var serving sync.WaitGroup
	serving.Go(func() {
		for range 1000 {
			c := take(t, conns)
			serving.Go(func() {
				_, _ = io.Copy(c, c)
				c.Close()
			})
		}
	})
	work := make(chan int)
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for i := range work {
				c := g.dial(cloudAddr, 6443).decided()
				if c == nil {
					t.Errorf("connection %d was refused", i)
					continue
				}
				text := fmt.Sprintf("%d%s", i, strings.Repeat(".", i*37))
				_, werr := io.WriteString(c, text)
				_ = c.CloseWrite()
				got, rerr := io.ReadAll(c)
				if werr != nil || rerr != nil || string(got) != text {
					t.Errorf("connection %d: %d of %d bytes came back, %v, %v", i, len(got), len(text), werr, rerr)
				}
				c.Close()
			}
		})
	}
	for i := range 1000 {
		work <- i
	}
	close(work)
	clients.Wait()
	serving.Wait()
	g.wg.Wait()
	g.wantNothingLeft()
	if n := g.in.Counters().Accepted; n != 1000 {
		t.Errorf("counted %d, want 1000", n)
	}
	// goleak, in TestMain, checks for goroutines.
}

func TestFlowsAreListedWithTheirBytes(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	before := time.Now()
	peer, up := carried(t, g)
	send(t, peer, "12345")
	wantRead(t, up, "12345")
	send(t, up, "123")
	wantRead(t, peer, "123")
	eventually(t, "counting", func() bool {
		l := g.flows.List("cloud")
		return len(l) == 1 && l[0].RxBytes == 5 && l[0].TxBytes == 3
	})
	f := g.flows.List("cloud")[0]
	if f.Direction != "inbound" || f.Service != "apiServer" || f.Remote != "[fd00::c]:40000" || f.StartedAt.Before(before) {
		t.Errorf("got %+v", f)
	}
	if got, want := g.flows.Carried(), (map[string]Carried{"cloud": {1, f.RxBytes + f.TxBytes}}); !maps.Equal(got, want) {
		t.Errorf("carried: got %v, want %v", got, want)
	}
	if l := g.flows.List("other"); l == nil || len(l) != 0 {
		t.Errorf("flows of another peer: %v, want an empty list", l)
	}
	for _, event := range []string{"event=connect", "event=disconnect"} {
		if event == "event=disconnect" {
			abort(peer)
			g.wg.Wait()
		}
		if !strings.Contains(g.log.String(), event) {
			t.Errorf("no audit record %s:\n%s", event, g.log)
		}
	}
}

func addrPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }
