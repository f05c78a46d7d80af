package relay_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/egress"
	"github.com/postern-dev/postern/discovery/relay"
)

// A name that only the proxy can resolve is passed to it unchanged, over TCP. UDP is used once
// the name can be resolved here.
func TestAProxyResolvesTheServersName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stream, sock := overPipes(t, false)
		var known atomic.Bool
		server := account
		server.Address, server.Transport = "turn.example.net:3478", relay.TransportAuto
		g := start(t, relay.Options{Server: server, Socket: sock,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address != "turn.example.net:3478" {
					t.Errorf("%q is dialled", address)
				}
				return stream.Dial(ctx, network, address)
			},
			Proxied: func(address string) bool { return strings.HasPrefix(address, "turn.example.net:") },
			Resolve: func(context.Context, string) ([]netip.Addr, error) {
				if known.Load() {
					return []netip.Addr{relayAddr}, nil
				}
				return nil, errors.New("no such host")
			},
		})
		a := g.allocated(t, nil)
		if a.Transport != "tcp" || !strings.Contains(g.Status().Fallback, "resolve turn.example.net") {
			t.Errorf("the allocation is %+v, since %q", a, g.Status().Fallback)
		}
		known.Store(true)
		setUDP(in, true)
		if better := g.allocated(t, func(b relay.Allocation) bool { return b.ID != a.ID }); better.Transport != "udp" {
			t.Errorf("the next allocation is over %s", better.Transport)
		}
	})
}

// The proxy's error is reported, and the next transport is tried at once.
func TestAProxyThatRefusesIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, sock := overPipes(t, false)
		server := account
		server.Address, server.Transport = "turn.example.net:3478", relay.TransportAuto
		g := start(t, relay.Options{Server: server, Socket: sock, Proxied: func(string) bool { return true },
			Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				return nil, &egress.Error{Proxy: "proxy.example.net:3128", Target: address, Failure: egress.Forbidden, Status: 403}
			},
			Resolve: func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{relayAddr}, nil },
		})
		time.Sleep(4 * time.Second) // virtual
		for _, want := range []string{"tcp: the proxy proxy.example.net:3128 does not connect to turn.example.net:3478 (403)", "tls: the proxy proxy.example.net:3128 does not connect to turn.example.net:5349 (403)"} {
			if err := g.Status().Err; !strings.Contains(err, want) {
				t.Errorf("the status says %q, want %q", err, want)
			}
		}
	})
}
