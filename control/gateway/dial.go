package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// askAgain is how old a peer's hello may be before a service that is not in it is asked
// for: an application that tries again and again must not make us ask each time.
const askAgain = 5 * time.Second

// hellos are the last answers of peers to a hello, by key.
type hellos struct{ m sync.Map }

type heard struct {
	auth.Hello
	at time.Time
}

func (h *hellos) get(k peer.PublicKey) (heard, bool) {
	v, ok := h.m.Load(k)
	if !ok {
		return heard{}, false
	}
	return v.(heard), true
}

func (h *hellos) set(k peer.PublicKey, v auth.Hello) { h.m.Store(k, heard{v, time.Now()}) }
func (h *hellos) drop(k peer.PublicKey)              { h.m.Delete(k) }

// apiServerOf is what a hello says of the peer's API server, which may be nothing.
func apiServerOf(h auth.Hello) auth.APIServer {
	if h.APIServer == nil {
		return auth.APIServer{}
	}
	return *h.APIServer
}

// heardHello keeps what a peer says of itself. What it offers is shown and remembered;
// its addresses and names are never dialled because of it.
func (g *Gateway) heardHello(name string, h auth.Hello) {
	m := g.roster.Load().byName[name]
	if m == nil {
		return
	}
	g.learn(m.key, func(m *member) {
		was, _ := g.hellos.get(m.key)
		g.hellos.set(m.key, h)
		same := slices.Equal(was.Offers, h.Offers) && apiServerOf(was.Hello) == apiServerOf(h)
		if !same && g.learning.may(m.key, time.Now()) { // else with those of all peers, a little later
			g.rememberHellos([]*member{m})
		}
		g.keepers.setPeer(m)
		g.keepers.wake(name)
		g.follow(m, h)
	})
	g.hearsOfBoot(m.key, h.HeardBoot)
	if h.Report == nil {
		return
	}
	is, was, err := g.reports.take(m.key, h.Report)
	if err != nil {
		g.log.Debug("the report of a peer is not understood", "peer", name, "error", err)
		return
	}
	was.Offers = is.Offers // which have just been heard
	g.applyReportChanges(m.key, is, was)
}

// rememberHellos stores what members said of themselves last, in one write, unless that is stored.
// It is called with changing held.
func (g *Gateway) rememberHellos(members []*member) {
	news := map[peer.PublicKey]func(*state.Observation){}
	for _, m := range members {
		if h, ok := g.hellos.get(m.key); ok {
			news[m.key] = func(o *state.Observation) {
				a := apiServerOf(h.Hello)
				o.Offers, o.ServerName, o.CAData = h.Offers, a.ServerName, a.CAData
			}
		}
	}
	if err := g.store.ObserveAll(news); err != nil {
		g.log.Warn("what peers offer cannot be remembered", "peers", len(news), "error", err)
	}
}

// dialOverlay connects to an address inside the tunnel.
func (g *Gateway) dialOverlay(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	c, err := g.plane.stack.DialTCP(ctx, to)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// dialService connects to a service of a peer inside the tunnel.
func (g *Gateway) dialService(ctx context.Context, name, service string) (forward.Conn, error) {
	m := g.roster.Load().byName[name]
	switch {
	case m == nil:
		return nil, fmt.Errorf("there is no peer %s", name)
	case m.pending:
		return nil, fmt.Errorf("peer %s waits for approval (postern peer approve %s)", name, name)
	case m.stock:
		return nil, fmt.Errorf("peer %s is a plain WireGuard peer: it offers no services", name)
	}
	port, err := g.servicePort(ctx, m, service)
	if err != nil {
		return nil, err
	}
	c, err := g.plane.stack.DialTCP(ctx, netip.AddrPortFrom(m.address(), port))
	if err != nil {
		// The verdict may be minutes old. Once it is no longer ok it is renewed soon enough.
		if service == api.ServiceAPIServer && g.checks.Finding(name, api.ServiceAPIServer).Outcome == api.OK {
			g.checks.Wake(name)
		}
		return nil, err
	}
	return c, nil
}

// servicePort is the overlay port of a peer's service. That of a named one is in the
// peer's hello, which is asked for when there has been none.
func (g *Gateway) servicePort(ctx context.Context, m *member, service string) (uint16, error) {
	switch service {
	case api.ServiceAuth:
		return api.PortAuth, nil
	case api.ServiceAPIServer:
		return api.PortAPIServer, nil
	}
	h, known := g.hellos.get(m.key)
	if h.Ports[service] == 0 && time.Since(h.at) > askAgain {
		if _, err := g.checks.Check(ctx, m.name); err != nil {
			return 0, err
		}
		h, known = g.hellos.get(m.key)
	}
	if port := h.Ports[service]; port != 0 {
		return port, nil
	}
	if !known {
		return 0, fmt.Errorf("peer %s has not answered yet, so the port of its service %s is not known", m.name, service)
	}
	return 0, fmt.Errorf("peer %s does not offer us a service %s (there: postern peer allow NAME …,%s)", m.name, service, service)
}
