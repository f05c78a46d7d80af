package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/logtail"
	"github.com/postern-dev/postern/testenv/patience"
)

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

func TestUpstreamDownIsRefusedAtOnceWithACause(t *testing.T) {
	address := closedPort(t)
	g := newGateway(t, Limits{}, nil)
	g.offer(address)
	if !g.dial(cloudAddr, api.PortAPIServer).wasRefused() {
		t.Fatal("the handshake was completed although the upstream is down")
	}
	g.wg.Wait()
	for _, want := range []string{"level=WARN", "code=PST0310", "peer=cloud", "upstream=" + address,
		"connection refused", "spec.services.apiServer.address"} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, g.log)
		}
	}
	if n := g.in.Counters().Refused[UpstreamDown]; n != 1 {
		t.Errorf("counted %d, want 1", n)
	}
}

func TestUpstreamFailuresHaveTheirCodesAndNeverHang(t *testing.T) {
	for _, c := range []struct {
		name string
		dial func(context.Context, string) (Conn, error)
		code string
	}{
		{"it does not answer", func(ctx context.Context, _ string) (Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "PST0311"},
		{"its name does not resolve", func(context.Context, string) (Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "api.invalid", IsNotFound: true}}
		}, "PST0312"},
		{"there is no route", func(context.Context, string) (Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}
		}, "PST0313"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t, Limits{}, c.dial)
				g.offer("api.invalid:6443")
				start := time.Now()
				if !g.dial(cloudAddr, api.PortAPIServer).wasRefused() {
					t.Error("the handshake was completed")
				}
				if took := time.Since(start); took > upstreamTimeout {
					t.Errorf("refused after %s, at most %s is allowed", took, upstreamTimeout)
				}
				g.wg.Wait()
				if !strings.Contains(g.log.String(), "code="+c.code) {
					t.Errorf("the log lacks %s:\n%s", c.code, g.log)
				}
			})
		})
	}
}

func TestDefaultDeny(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   netip.Addr
		port   uint16
		reason Reason // empty: accepted
	}{
		{"a granted service", cloudAddr, 6443, ""},
		{"a granted named service", cloudAddr, 5000, ""},
		{"auth, which is open to every peer", otherAddr, 80, ""},
		{"auth, with a one-time key", ticketAddr, 80, ""},
		{"a service that is not granted", otherAddr, 5000, NotGranted},
		{"the API server with a one-time key, whatever the policy says", ticketAddr, 6443, NotGranted},
		{"a port without a service", cloudAddr, 22, NoService},
		{"a source that is no peer", netip.MustParseAddr("fd00::bad"), 80, UnknownPeer},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, _ := upstream(t)
			g := newGateway(t, Limits{}, nil)
			g.offer(address, Service{Name: api.ServiceAuth, Ports: api.PortsOf(api.PortAuth), Upstream: address})
			s := g.dial(c.from, c.port)
			if refused := s.wasRefused(); refused != (c.reason != "") {
				t.Fatalf("refused: %v, want reason %q", refused, c.reason)
			}
			if c.reason == "" {
				return
			}
			g.wg.Wait()
			if n := g.in.Counters().Refused[c.reason]; n != 1 {
				t.Errorf("counted %d for %s, want 1", n, c.reason)
			}
			if !strings.Contains(g.log.String(), "event=refuse") || !strings.Contains(g.log.String(), "code=PST0703") {
				t.Errorf("no audit record:\n%s", g.log)
			}
		})
	}
}

func TestRefusalsOfOnePeerAreSampledAndCounted(t *testing.T) {
	g := newGateway(t, Limits{}, nil)
	tail := logtail.New(slog.DiscardHandler)
	g.in.opts.Audit = audit.New(slog.New(tail))
	for range 100 {
		g.dial(cloudAddr, 22)
	}
	g.wg.Wait()
	if n := len(tail.After(0)); n == 0 || n > 20 {
		t.Errorf("%d records of 100 refusals, want some, and at most 20", n)
	}
	if n := g.in.Counters().Refused[NoService]; n != 100 {
		t.Errorf("counted %d, want 100", n)
	}
}

func TestAPeerThatConnectsTooFastIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialled := 0
		g := newGateway(t, Limits{PeerRate: 10, PeerBurst: 130}, func(context.Context, string) (Conn, error) {
			dialled++
			return nil, syscall.ECONNREFUSED
		})
		g.offer("upstream:1")
		connect := func(from netip.Addr, n int) {
			for range n {
				g.dial(from, api.PortAPIServer)
				g.wg.Wait()
			}
		}
		// 128 in a row are not a flood.
		if connect(cloudAddr, 128); dialled != 128 {
			t.Fatalf("%d of 128 connections in a row were carried", dialled)
		}
		if connect(cloudAddr, 100); dialled != 130 {
			t.Errorf("%d connections were carried, want 130 at once", dialled)
		}
		if n := g.in.Counters().Refused[PeerRateLimit]; n != 98 {
			t.Errorf("%d are counted as refused, want 98", n)
		}
		if !strings.Contains(g.log.String(), "code=PST0804") || !strings.Contains(g.log.String(), "10 connections a second") {
			t.Errorf("no warning with its cause:\n%s", g.log)
		}
		if connect(otherAddr, 20); dialled != 150 {
			t.Errorf("another peer had %d of 20 connections carried", dialled-130)
		}
		time.Sleep(2 * time.Second) // virtual
		if connect(cloudAddr, 100); dialled != 170 {
			t.Errorf("after 2 s %d more were carried, want 20", dialled-150)
		}
		g.flows.SetPeerRate(20) // as a reload may
		time.Sleep(2 * time.Second)
		if connect(cloudAddr, 100); dialled != 210 {
			t.Errorf("2 s after the rate was doubled %d more were carried, want 40", dialled-170)
		}
		// Unknown senders are limited as well, and so is the memory for them.
		for i := range 2 * maxArriving {
			g.flows.arrives(shareOf(DirectionInbound, fmt.Sprint("ticket-", i), api.ServiceAuth), time.Now())
			time.Sleep(time.Second)
		}
		if n := len(g.flows.arriving); n > maxArriving {
			t.Errorf("the rates of %d are remembered, want at most %d", n, maxArriving)
		}
	})
}

// A client behind a peer must not prevent the peer's gateway from using auth, neither by new
// connections nor by open ones.
func TestOtherConnectionsLeaveRoomForAuth(t *testing.T) {
	const many = 2000
	for name, stay := range map[string]int{"refused by the upstream": 0, "being opened": 16} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, Limits{HalfOpen: 16, PeerRate: 1}, func(context.Context, string) (Conn, error) {
				if stay > 0 {
					<-t.Context().Done() // and not for upstreamTimeout, in which a busy machine may not refuse the others
				}
				return nil, syscall.ECONNREFUSED
			})
			l := NewListener(&net.TCPAddr{IP: ownAddr.AsSlice(), Port: int(api.PortAuth)})
			defer l.Close()
			g.offer("upstream:1", Service{Name: api.ServiceAuth, Ports: api.PortsOf(api.PortAuth), Handler: l})
			for range many {
				g.start(cloudAddr, api.PortAPIServer)
			}
			eventually(t, "the refusal of what is too much", func() bool {
				n := 0
				for _, refused := range g.in.Counters().Refused {
					n += int(refused)
				}
				return n == many-stay
			})
			if g.in.Counters().Refused[PeerRateLimit] == 0 {
				t.Fatalf("the connections were within their rate: %v", g.in.Counters().Refused)
			}
			asked := g.dial(cloudAddr, api.PortAuth).conn()
			served, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = served.Close()
			wantEOF(t, asked)
		})
	}
}

func TestOneTimeKeyIsServedByAuthInProcess(t *testing.T) {
	l := NewListener(&net.TCPAddr{IP: ownAddr.AsSlice(), Port: 80})
	server := &http.Server{
		ReadHeaderTimeout: patience.Left(),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "served ", r.URL.Path)
		}),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	g := newGateway(t, Limits{}, nil)
	if err := g.in.SetServices([]Service{{Name: api.ServiceAuth, Ports: api.PortsOf(80), Handler: l}}); err != nil {
		t.Fatal(err)
	}
	for _, from := range []netip.Addr{ticketAddr, cloudAddr} {
		c := g.dial(from, 80).conn()
		send(t, c, "GET /"+from.String()+" HTTP/1.0\r\n\r\n")
		answer, err := io.ReadAll(c)
		if want := "\r\n\r\nserved /" + from.String(); err != nil || !strings.HasSuffix(string(answer), want) {
			t.Errorf("got %q, %v; want it to end with %q", answer, err, want)
		}
	}
	g.wg.Wait() // Handle returns once the server has closed the connection

	idle := g.dial(cloudAddr, 80).conn()
	eventually(t, "the flow", func() bool { return len(g.flows.List("cloud")) == 1 })
	g.flows.ClosePeer("cloud")
	wantReset(t, idle)
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	g.wg.Wait()
	if late := g.dial(cloudAddr, 80).conn(); late != nil {
		wantReset(t, late) // nobody serves any more: it does not hang
	}
}

func TestServicesAreReplacedByDifference(t *testing.T) {
	first, conns1 := upstream(t)
	second, conns2 := upstream(t)
	g := newGateway(t, Limits{}, nil)
	g.offer(first)
	a, r := g.dial(cloudAddr, 6443).conn(), g.dial(cloudAddr, 5000).conn()
	up := take(t, conns1)
	take(t, conns1)

	// The API server moves, registry is withdrawn.
	if err := g.in.SetServices([]Service{{Name: api.ServiceAPIServer, Ports: api.PortsOf(6443), Upstream: second}}); err != nil {
		t.Fatal(err)
	}
	wantReset(t, r)
	send(t, a, "still open")
	_ = a.CloseWrite()
	g.dial(cloudAddr, 6443).conn()
	take(t, conns2)
	_ = up
	if !g.dial(cloudAddr, 5000).wasRefused() {
		t.Error("a withdrawn service was reached")
	}

	for name, bad := range map[string][]Service{
		"two on one port":      {{Name: "a", Ports: api.PortsOf(1), Upstream: "x:1"}, {Name: "b", Ports: api.PortsOf(1), Upstream: "x:2"}},
		"one name twice":       {{Name: "a", Ports: api.PortsOf(1), Upstream: "x:1"}, {Name: "a", Ports: api.PortsOf(2), Upstream: "x:2"}},
		"neither way to serve": {{Name: "a", Ports: api.PortsOf(1)}},
		"no port":              {{Name: "a", Upstream: "x:1"}},
	} {
		if err := g.in.SetServices(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	g.dial(cloudAddr, 6443).conn() // the old ones are still in force
	take(t, conns2)
}

func TestUpstreamIsResolvedForEachConnection(t *testing.T) {
	var dials atomic.Int32
	g := newGateway(t, Limits{}, func(_ context.Context, address string) (Conn, error) {
		if address != "api.example.net:6443" {
			t.Errorf("dialled %s", address)
		}
		dials.Add(1)
		return nil, syscall.ECONNREFUSED
	})
	g.offer("api.example.net:6443")
	for range 3 {
		g.dial(cloudAddr, 6443)
	}
	g.wg.Wait()
	if n := dials.Load(); n != 3 {
		t.Errorf("dialled %d times, want 3 with the name as configured", n)
	}
}
