//go:build !race

package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// A program that sends datagrams as fast as it can keeps neither connections nor what the gateways
// ask each other from going on, nor anybody else's datagrams. Not under the race detector: what encrypts
// is ten times slower then, and beside other tests WireGuard's queue alone takes longer than a connection waits.
func TestAFloodOfDatagramsHoldsUpNothingElse(t *testing.T) {
	w := newWorld(t)
	w.offerUDP(w.Cloud, "dns", 53, udpEcho(t))
	w.offerUDP(w.Cloud, "sink", 9, udpEcho(t))
	w.namedEcho(w.Cloud, "registry", 5000, echoServer(t))
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"auth", "dns", "sink", "registry"}}), api.JoinRequest{
		Local: map[string]string{"dns": "127.0.0.1:0/UDP", "sink": "127.0.0.1:0/UDP", "registry": "127.0.0.1:0"}})
	w.connected(w.Cloud, w.Edge)
	asks, tcp := w.udpClient(w.localAddress(w.Edge, "cloud", "dns")), w.open(w.localAddress(w.Edge, "cloud", "registry"))
	flood := w.udpClient(w.localAddress(w.Edge, "cloud", "sink"))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 1200); ; {
			select {
			case <-stop:
				return
			default:
				_, _ = flood.Write(b) // also while there is no room
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	w.awaitPeer(w.Cloud, "edge", func(p api.PeerStatus) string {
		for _, f := range p.Flows {
			if f.Service == "sink" && f.RxBytes > 10<<20 {
				return ""
			}
		}
		return "the flood has not begun"
	})
	for range 20 {
		if err := tcp.echo(strings.Repeat("x", 10_000)); err != nil {
			t.Fatal(err)
		}
		w.echoes(asks, 100)
		w.await("an answer by auth", func() string { // Where the machine is busy besides, WireGuard's queue takes seconds.
			if r, err := w.Edge.Gateway.Ping(w.ctx, "cloud", api.PingRequest{Layer: "auth"}); err != nil || r.Error != "" {
				return fmt.Sprintf("%+v, %v", r, err)
			}
			return ""
		})
		if p, _ := w.status(w.Edge, "cloud"); p.State != api.StateConnected {
			t.Fatalf("edge shows cloud as %s: %s", p.State, p.Reason)
		}
	}
}
