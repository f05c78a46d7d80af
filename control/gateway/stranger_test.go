package gateway_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// stranger speaks WireGuard and nothing else: it does what a gateway of ours never
// would.
type stranger struct {
	key    peer.PrivateKey
	stack  *netstack.Stack
	engine *tunnel.Engine
}

// newStranger brings a device up on a host of the world's internet, with the overlay address
// of its key.
func newStranger(t *testing.T, host *simnet.Host, key peer.PrivateKey, peers ...peer.Config) *stranger {
	t.Helper()
	return newStrangerWith(t, host, key, netstack.Options{Addresses: []netip.Addr{peer.OverlayAddr(key.Public())}}, peers...)
}

// newStrangerWith is one with another stack.
func newStrangerWith(t *testing.T, host *simnet.Host, key peer.PrivateKey, o netstack.Options, peers ...peer.Config) *stranger {
	t.Helper()
	stack, err := netstack.New(o)
	if err != nil {
		t.Fatal(err)
	}
	bind := underlay.NewPacket(func(port uint16) (underlay.PacketConn, error) { return host.ListenUDP(port) }, underlay.Options{})
	engine, err := tunnel.New(tunnel.Options{PrivateKey: key, Device: stack.Device(), Underlay: bind})
	if err != nil {
		t.Fatal(errors.Join(err, stack.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(engine.Close(), stack.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := engine.SetPeers(peers); err != nil {
		t.Fatal(err)
	}
	return &stranger{key, stack, engine}
}

// client asks a site's auth service.
func (s *stranger) client(at *lab.Site) *auth.Client {
	return auth.NewClient(peer.OverlayAddr(siteKey(at)), s.stack.DialContext)
}

// pinged reports whether a site answers an echo in time.
func (s *stranger) pinged(ctx context.Context, at *lab.Site, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err := s.stack.Ping(ctx, peer.OverlayAddr(siteKey(at)), 56)
	return err == nil
}

// reaches waits until a site has answered an echo of a stranger's.
func (w *world) reaches(s *stranger, at *lab.Site) {
	w.t.Helper()
	w.answered("the stranger reaches "+at.Name, func(ctx context.Context) string {
		if _, err := s.stack.Ping(ctx, peer.OverlayAddr(siteKey(at)), 56); err != nil {
			return err.Error()
		}
		return ""
	})
}

// siteKey is a site's public key.
func siteKey(s *lab.Site) peer.PublicKey {
	st, err := s.Gateway.Status(context.Background())
	if err != nil {
		return peer.PublicKey{}
	}
	k, _ := peer.ParsePublicKey(st.Gateway.PublicKey)
	return k
}

// endpoint is where a public site is reached.
func endpoint(s *lab.Site) netip.AddrPort {
	return netip.AddrPortFrom(s.Host.Addrs()[0], 51820)
}

// host adds a public host to the world.
func (w *world) host(name, addr string) *simnet.Host {
	w.t.Helper()
	h, err := w.Internet.AddHost(simnet.HostOptions{Name: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		Link: simnet.Both(simnet.Conditions{Delay: time.Millisecond})})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// newKey makes a private key.
func newKey(t *testing.T) peer.PrivateKey {
	t.Helper()
	k, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}
