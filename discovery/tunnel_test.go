package discovery_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Kinds of datagrams between gateways.
const (
	initiation = 0x81 // key
	response   = 0x82 // key
	inBand     = 0x84 // key, JSON
	nothing    = 0x85 // keeps the NAT open towards the relay
)

func (g *gateway) receive(b []byte, from netip.AddrPort) {
	over := peer.Direct(from)
	if g.alloc != nil && from == g.alloc.controlAddr() {
		source, payload, ok := behead(b)
		if !ok {
			return
		}
		b, over = payload, peer.Path{Via: g.via(), Remote: source}
	}
	g.mu.Lock()
	tap := g.tap
	g.mu.Unlock()
	if tap != nil {
		tap(b, over)
	}
	switch {
	case len(b) == 0:
	case b[0] < 2:
		if !g.pf.HandleSTUN(b, over) {
			g.agent.HandleSTUN(b, over)
		}
	case len(b) > peer.KeySize:
		g.tunnelled(b[0], peer.PublicKey(b[1:1+peer.KeySize]), b[1+peer.KeySize:], over)
	}
}

// tunnelled handles datagrams that would be WireGuard's.
func (g *gateway) tunnelled(kind byte, from peer.PublicKey, payload []byte, over peer.Path) {
	known := false
	for _, p := range g.known() {
		known = known || p.Key == from
	}
	if !known {
		return
	}
	switch kind {
	case initiation:
		_ = g.send(g.datagram(response, nil), over, 0)
		g.shaken(from, over)
	case response:
		g.shaken(from, over)
	case inBand:
		var m path.Message
		g.mu.Lock()
		session := g.sessions[from]
		g.mu.Unlock()
		if session && json.Unmarshal(payload, &m) == nil {
			g.pf.Receive(from, m)
		}
	}
}

func (g *gateway) shaken(k peer.PublicKey, over peer.Path) {
	g.mu.Lock()
	g.sessions[k] = true
	g.mu.Unlock()
	g.pf.HandshakeDone(k, over)
}

func (g *gateway) datagram(kind byte, payload []byte) []byte {
	key := g.public()
	return append(append([]byte{kind}, key[:]...), payload...)
}

// route, handshake and tell are the path finder's callbacks. They read the path finder's state to
// show that it holds no lock meanwhile.
func (g *gateway) route(k peer.PublicKey, r path.Routing) {
	g.pf.Snapshot(k)
	g.mu.Lock()
	g.routes[k] = r
	session := g.sessions[k]
	g.mu.Unlock()
	if !session {
		g.initiate(k)
	}
}

func (g *gateway) handshake(k peer.PublicKey) {
	g.pf.Snapshot(k)
	g.mu.Lock()
	g.handshakes[k]++
	g.mu.Unlock()
	g.initiate(k)
}

func (g *gateway) tell(k peer.PublicKey, m path.Message) {
	g.pf.Snapshot(k)
	b, err := json.Marshal(m)
	if err != nil {
		g.p.t.Error(err)
	}
	g.mu.Lock()
	over, session := g.routes[k].Selected, g.sessions[k]
	g.mu.Unlock()
	if session && over.IsValid() {
		_ = g.send(g.datagram(inBand, b), over, 0)
	}
}

func (g *gateway) initiate(k peer.PublicKey) {
	g.mu.Lock()
	to := g.routes[k].Initiate
	g.mu.Unlock()
	for _, over := range to {
		_ = g.send(g.datagram(initiation, nil), over, 0)
	}
}

// beat repeats unanswered handshakes and keeps the NAT open towards the relay.
func (g *gateway) beat(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; ; i++ {
		if g.alloc != nil && i%20 == 0 {
			_, _ = g.conn.WriteToUDPAddrPort([]byte{nothing}, g.alloc.controlAddr())
		}
		for _, p := range g.known() {
			g.mu.Lock()
			session, busy := g.sessions[p.Key], g.busy
			g.mu.Unlock()
			switch {
			case !session:
				g.initiate(p.Key)
			case busy:
				g.pf.Traffic(p.Key)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
