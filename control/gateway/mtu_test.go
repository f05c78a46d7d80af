package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/testenv/simnet"
)

// Types and sizes of WireGuard's data messages, in bytes (whitepaper §5.4.6).
const (
	dataMessage  = 4
	dataOverhead = 32
)

// wideSite is a site with an overlay MTU on a link that takes IP packets of a size and drops
// larger ones without a word.
func (w *world) wideSite(name, addr string, overlay, link int) *lab.Site {
	w.t.Helper()
	s, err := w.AddSite(w.ctx, simnet.HostOptions{
		Name: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		Link: simnet.Both(simnet.Conditions{Delay: time.Millisecond, MTU: link, SilentMTU: true}),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.stop(s)
	if err := s.Edit(func(g *api.GatewaySpec) { g.MTU = overlay }); err != nil {
		w.t.Fatal(err)
	}
	w.start(s)
	return s
}

// A gateway with an overlay MTU for jumbo frames sends them where the path takes them, and
// nothing that the path does not take where it does not, also before it has been measured.
func TestPacketsAreAsLargeAsThePathTakes(t *testing.T) {
	const overlay = 8920
	for _, c := range []struct{ link, mtu int }{{9000, 8920}, {1500, 1440}} {
		t.Run(fmt.Sprintf("a link of %d", c.link), func(t *testing.T) {
			w := newWorld(t)
			paris, rome := w.wideSite("paris", "203.0.113.77", overlay, 9000), w.wideSite("rome", "203.0.113.78", overlay, c.link)
			var largest atomic.Int64
			defer rome.Host.Link().Tap(func(d simnet.Datagram, _ simnet.Direction) {
				if n := int64(len(d.Payload)); n > 0 && d.Payload[0] == dataMessage && n > largest.Load() {
					largest.Store(n)
				}
			})()
			w.namedEcho(paris, "echo", 7000, echoServer(t))
			w.join(rome, w.invite(paris, api.InviteRequest{Allow: []string{"echo"}}), api.JoinRequest{Local: map[string]string{"echo": "127.0.0.1:0"}})
			w.connected(paris, rome)
			listener := w.localAddress(rome, "paris", "echo")
			w.open(listener).echoBytes(1 << 18)
			measured := func(p api.PeerStatus) string {
				if p.Path.MTU == c.mtu {
					return ""
				}
				return fmt.Sprintf("its path's MTU is %d, want %d", p.Path.MTU, c.mtu)
			}
			w.awaitPeer(paris, "rome", measured)
			w.awaitPeer(rome, "paris", measured)
			w.open(listener).echoBytes(1 << 18)
			// A full packet of gVisor's leaves 28 bytes free, and is padded to 16.
			if got, most := int(largest.Load()), c.mtu+dataOverhead; got > most || got < most-48 {
				t.Errorf("the largest data message has %d bytes, want nearly %d", got, most)
			}
		})
	}
}

// What the configuration could have is told where it would make a difference.
func TestJumboInterfacesAreToldOf(t *testing.T) {
	w := newWorld(t, func(site string, o *gateway.Options) {
		if site == "edge" {
			o.LinkMTU = func() (int, error) { return 9001, nil }
		}
	})
	const told = `"interfaces support jumbo frames; `
	log := w.log.tail(1 << 20)
	if n := strings.Count(log, told); n != 1 {
		t.Fatalf("%d gateways suggest jumbo frames, want only edge:\n%s", n, log)
	}
	line, _, _ := strings.Cut(log[strings.Index(log, told):], "\n")
	for _, want := range []string{`"gateway":"edge"`, `"linkMtu":9001`, `"mtu":8920`} {
		if !strings.Contains(line, want) {
			t.Errorf("it lacks %s: %s", want, line)
		}
	}
}

// Nobody measures the path to a stock peer: it gets what the interfaces leave.
func TestAStockPeersPathHasTheTunnelsMTU(t *testing.T) {
	w := newWorld(t, func(_ string, o *gateway.Options) {
		o.LinkMTU = func() (int, error) { return 1300, nil }
	})
	stockPeer(w, "router", netip.MustParsePrefix("2001:db8:7::/120"))
	p := w.awaitPeer(w.Cloud, "router", func(p api.PeerStatus) string {
		if p.Path.Kind == api.PathDirect {
			return ""
		}
		return "no path: " + p.Path.Reason
	})
	if p.Path.MTU != 1280 {
		t.Errorf("the path's MTU is %d, want 1280", p.Path.MTU)
	}
}

// echoBytes sends so many bytes and compares what comes back.
func (s *stream) echoBytes(n int) {
	s.t.Helper()
	if err := s.SetDeadline(time.Now().Add(patience.Left())); err != nil {
		s.t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("postern "), n/8)
	written := make(chan error, 1)
	go func() {
		_, err := s.Write(sent)
		written <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(s, got); err != nil {
		s.t.Error(err)
	} else if !bytes.Equal(got, sent) {
		s.t.Error("other bytes come back")
	}
	if err := <-written; err != nil {
		s.t.Error(err)
	}
}
