package gateway_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
)

// udpEcho answers each datagram with itself.
func udpEcho(t *testing.T) string { return udpEchoAt(t, "127.0.0.1") }

func udpEchoAt(t *testing.T, host string) string {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(host)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = c.WriteToUDPAddrPort(b[:n], from)
			}
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return c.LocalAddr().String()
}

// offerUDP makes a site offer a named service of UDP.
func (w *world) offerUDP(s *lab.Site, name string, port uint16, address string) {
	w.t.Helper()
	w.mustEdit(s, func(g *api.GatewaySpec) {
		g.Services.Named = append(g.Services.Named, api.NamedService{Name: name, Protocol: api.UDP, Port: port, Address: address})
	})
}

// udpClient is a program that sends to a site's listener.
func (w *world) udpClient(address string) *net.UDPConn {
	w.t.Helper()
	at, err := api.ParseListen(address)
	if err != nil || at.Protocol != api.UDP {
		w.t.Fatalf("the listener is at %s (%v)", address, err)
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at.At(0)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// echoes sends until the datagram comes back: some may be lost.
func (w *world) echoes(c *net.UDPConn, size int) {
	w.t.Helper()
	sent, b := make([]byte, size), make([]byte, 1<<16)
	if _, err := rand.Read(sent); err != nil {
		w.t.Fatal(err)
	}
	for w.ctx.Err() == nil {
		if _, err := c.Write(sent); err != nil {
			w.t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(b)
		if err == nil && bytes.Equal(b[:n], sent) {
			return
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			w.t.Fatal(err)
		}
	}
	w.t.Fatalf("a datagram of %d bytes does not come back", size)
}

func TestUDPServicesBothWays(t *testing.T) {
	w := newWorld(t)
	w.offerUDP(w.Cloud, "dns", 53, udpEcho(t))
	w.offerUDP(w.Edge, "game", 53, udpEcho(t))
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"dns"}}),
		api.JoinRequest{Allow: []string{"game"}, Local: map[string]string{"dns": "127.0.0.1:0/UDP"}})
	w.connected(w.Cloud, w.Edge)
	if err := w.Cloud.Gateway.PeerLocal(w.ctx, "edge", api.PeerLocalRequest{Local: map[string]string{"game": "127.0.0.1:0/UDP"}}); err != nil {
		t.Fatal(err)
	}
	out, in := w.udpClient(w.localAddress(w.Edge, "cloud", "dns")), w.udpClient(w.localAddress(w.Cloud, "edge", "game"))
	for _, size := range []int{1, 512, 1200, 1500, 60_000} { // beyond the path's MTU too
		w.echoes(out, size)
		w.echoes(in, size)
	}
	w.awaitPeer(w.Cloud, "edge", func(p api.PeerStatus) string {
		seen := map[string]bool{}
		for _, f := range p.Flows {
			if f.Protocol == api.UDP {
				seen[f.Direction+" "+f.Service] = f.RxBytes > 60_000 && f.TxBytes > 60_000
			}
		}
		if !seen["inbound dns"] || !seen["outbound game"] || p.UDPFlows != 2 {
			return fmt.Sprintf("cloud shows %d flows, of them %+v", p.UDPFlows, p.Flows)
		}
		return ""
	})

	// Without the grant the flow ends, at both sides.
	if err := w.Cloud.Gateway.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: []string{}}); err != nil {
		t.Fatal(err)
	}
	if p, _ := w.status(w.Cloud, "edge"); p.UDPFlows != 1 {
		t.Errorf("cloud has %d flows without the grant", p.UDPFlows)
	}
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if p.UDPFlows > 1 { // Each datagram begins a flow, which is refused.
			if _, err := out.Write([]byte("x")); err != nil {
				return err.Error()
			}
			return "the flow goes on"
		}
		return ""
	})
	w.echoes(in, 100)
}

// What says TCP there and UDP here is told, and nothing hangs.
func TestAListenerOfTheWrongProtocolIsNamed(t *testing.T) {
	w := newWorld(t)
	w.offerUDP(w.Cloud, "dns", 53, udpEcho(t))
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"dns"}}), api.JoinRequest{Local: map[string]string{"dns": "127.0.0.1:0"}})
	w.connected(w.Cloud, w.Edge)
	listener := w.localAddress(w.Edge, "cloud", "dns")
	w.await("a warning that names both protocols", func() string { // once edge has heard what cloud offers
		if c, err := dial(w.ctx, listener); err == nil {
			_ = c.SetDeadline(time.Now().Add(patience.Left()))
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a TCP listener for a UDP service: %v", err)
			}
			c.Close()
		}
		if strings.Contains(w.log.String(), "service dns of peer cloud is UDP, and the listener here is TCP") {
			return ""
		}
		return "it is not in the log"
	})
}
