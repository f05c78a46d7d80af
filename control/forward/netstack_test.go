package forward

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/testenv/patience"
)

// site is two gateways' stacks back to back, as WireGuard would connect them: edge has a local
// listener that leads to the API server of cloud, whose upstream is on loopback.
type site struct {
	edge, cloud *netstack.Stack
	out         *Outbound
	in          *Inbound
	edgeFlows   *Flows
	cloudFlows  *Flows
	local       string // edge's listener
}

var (
	edgeOverlay  = netip.MustParseAddr("fd00::ed9e")
	cloudOverlay = netip.MustParseAddr("fd00::c10d")
)

func newSite(t testing.TB, upstream string) *site {
	t.Helper()
	s := &site{edgeFlows: NewFlows(Limits{}), cloudFlows: NewFlows(Limits{})}
	s.in = NewInbound(s.cloudFlows, InboundOptions{
		Resolve: func(a netip.Addr) (Peer, bool) { return Peer{Name: "edge"}, a == edgeOverlay },
		Allowed: func(_ Peer, service string) bool { return service == api.ServiceAPIServer },
	})
	if err := s.in.SetServices([]Service{{Name: api.ServiceAPIServer, Ports: api.PortsOf(6443), Upstream: upstream},
		{Name: "secret", Ports: api.PortsOf(5000), Upstream: upstream}}); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.edge, err = netstack.New(netstack.Options{Addresses: []netip.Addr{edgeOverlay}}); err != nil {
		t.Fatal(err)
	}
	if s.cloud, err = netstack.New(netstack.Options{Addresses: []netip.Addr{cloudOverlay},
		OnTCP: func(in *netstack.Incoming) { s.in.Handle(Wrap(in)) }}); err != nil {
		t.Fatal(err)
	}
	var wires sync.WaitGroup
	wires.Go(func() { wire(t, s.edge.Device(), s.cloud.Device()) })
	wires.Go(func() { wire(t, s.cloud.Device(), s.edge.Device()) })
	s.out = NewOutbound(s.edgeFlows, OutboundOptions{
		Dial: func(ctx context.Context, _ Target) (Conn, error) {
			c, err := s.edge.DialTCP(ctx, netip.AddrPortFrom(cloudOverlay, 6443))
			if err != nil {
				return nil, err
			}
			return c, nil
		}})
	s.out.SetLocals([]Local{{Peer: "cloud", Service: api.ServiceAPIServer}})
	s.local = s.out.Locals()[0].Address
	t.Cleanup(func() {
		s.out.Close()
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.edgeFlows.Drain(now)
		_ = s.cloudFlows.Drain(now)
		_ = s.edge.Close()
		_ = s.cloud.Close()
		wires.Wait()
	})
	return s
}

// wire moves packets from one device to another.
func wire(t testing.TB, from, to tun.Device) {
	const offset = 16
	bufs := make([][]byte, from.BatchSize())
	for i := range bufs {
		bufs[i] = make([]byte, offset+2048)
	}
	sizes := make([]int, len(bufs))
	for {
		n, err := from.Read(bufs, sizes, offset)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("read from the stack: %v", err)
			}
			return
		}
		out := make([][]byte, n)
		for i := range n {
			out[i] = bufs[i][:offset+sizes[i]]
		}
		if _, err := to.Write(out, offset); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("write to the stack: %v", err)
			return
		}
	}
}

func TestThroughTheTunnelUpstreamDownIsRefusedAtOnce(t *testing.T) {
	s := newSite(t, closedPort(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	defer cancel()
	for name, port := range map[string]uint16{"upstream down": 6443, "not granted": 5000, "no service": 22} {
		start := time.Now()
		_, err := s.edge.DialTCP(ctx, netip.AddrPortFrom(cloudOverlay, port))
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %v, want connection refused", name, err)
		}
		// A SYN is first repeated after a second, and the result must come before that; but a busy
		// machine gets more time.
		if took := time.Since(start); took > upstreamTimeout {
			t.Errorf("%s: took %s", name, took)
		}
	}
	wantTurnedAway(t, s.local) // a local client sees it as a reset
}

func TestThroughTheTunnelBytesAndHalfClosesArrive(t *testing.T) {
	const size = 16 << 20
	address, conns := upstream(t)
	s := newSite(t, address)
	client := connect(t, s.local)
	server := take(t, conns)

	digest := func(r io.Reader) (sum [32]byte) {
		h := sha256.New()
		if _, err := io.Copy(h, r); err != nil {
			t.Errorf("read: %v", err)
		}
		return [32]byte(h.Sum(nil))
	}
	random := func(seed byte) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{seed}), size) }
	var atServer, atClient [32]byte
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(client, random(1)); err != nil {
			t.Errorf("upload: %v", err)
		}
		_ = client.CloseWrite()
		atClient = digest(client)
	})
	wg.Go(func() {
		atServer = digest(server) // until the half-close
		if _, err := io.Copy(server, random(2)); err != nil {
			t.Errorf("download after the half-close: %v", err)
		}
		_ = server.CloseWrite()
	})
	wg.Wait()
	if atServer != digest(random(1)) || atClient != digest(random(2)) {
		t.Error("the bytes that arrived are not those that were sent")
	}
	eventually(t, "the end of both flows", func() bool {
		return s.edgeFlows.Count()[DirectionOutbound] == 0 && s.cloudFlows.Count()[DirectionInbound] == 0
	})
}

func TestThroughTheTunnelResetsArrive(t *testing.T) {
	address, conns := upstream(t)
	s := newSite(t, address)
	for name, pick := range map[string]func(client, server *net.TCPConn) (from, to *net.TCPConn){
		"from the client": func(c, u *net.TCPConn) (*net.TCPConn, *net.TCPConn) { return c, u },
		"from the server": func(c, u *net.TCPConn) (*net.TCPConn, *net.TCPConn) { return u, c },
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t, s.local)
			server := take(t, conns)
			from, to := pick(client, server)
			send(t, from, "x")
			wantRead(t, to, "x")
			abort(from)
			wantReset(t, to)
		})
	}
}

func TestThroughTheTunnelRemovalEndsFlowsOnBothSides(t *testing.T) {
	address, conns := upstream(t)
	s := newSite(t, address)
	client := connect(t, s.local)
	server := take(t, conns)
	send(t, client, "x")
	wantRead(t, server, "x")
	s.cloudFlows.ClosePeer("edge")
	wantReset(t, server)
	wantReset(t, client)
}
