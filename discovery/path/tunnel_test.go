package path_test

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// WireGuard's timers, and those of the engine.
const (
	rekeyTimeout = 5 * time.Second
	rekeyAfter   = 120 * time.Second
	sessionEnds  = 180 * time.Second
	silentAfter  = 5 * time.Second
	dataEvery    = 100 * time.Millisecond
)

// stepTunnel does what the tunnel has to do and returns the time of the next step.
func (g *gateway) stepTunnel(now time.Time) time.Time {
	next := now.Add(rekeyTimeout)
	wants := g.session.IsZero() || now.Sub(g.session) > rekeyAfter && (g.low || now.Sub(g.session) > sessionEnds)
	if wants && len(g.routing.Initiate) > 0 && now.Sub(g.initiated) >= rekeyTimeout {
		g.initiate(now)
	}
	if g.traffic && !g.session.IsZero() {
		if !now.Before(g.sentData.Add(dataEvery)) {
			g.sentData = now
			g.sendData(now)
		}
		next = g.sentData.Add(dataEvery)
	}
	return next
}

// initiate starts a handshake on all paths that may be tried.
func (g *gateway) initiate(now time.Time) {
	if !g.initiated.IsZero() && g.initiated.Equal(now) {
		return
	}
	g.initiated = now
	g.initSeq++
	paths := slices.Clone(g.routing.Initiate)
	if g.unanswered++; g.unanswered > 2 && g.routing.Selected.IsValid() {
		g.m.Silent(now)
	}
	for _, p := range paths {
		_ = g.send(packet(kInitiation, initiationSize, g.boot<<32|g.initSeq), p, 0, false)
	}
}

func (g *gateway) sendData(now time.Time) {
	to := g.routing.Selected
	if !to.IsValid() {
		return
	}
	size := g.dataSize
	if mtu := g.routing.MTU; mtu > 0 {
		size = min(size, mtu+32) // of the cut packets
	}
	b := packet(kData, max(size, dataSize), 0)
	_ = g.send(b, to, 0, g.dataSize > 0)
	if g.sentSince.IsZero() {
		g.sentSince = now
	}
	g.m.Traffic(now)
	if now.Sub(g.sentSince) > silentAfter && now.Sub(g.heardAt) > silentAfter {
		g.sentSince = now
		g.m.Silent(now)
		if now.Sub(g.initiated) >= rekeyTimeout {
			g.initiate(now) // as the engine does
		}
	}
}

// receiveTunnel handles a packet of the tunnel.
func (g *gateway) receiveTunnel(now time.Time, b []byte, n uint64, from peer.Path) {
	if g.site.noProbe { // it roams, as WireGuard by itself does
		g.routing.Selected = from
	}
	switch b[0] {
	case kInitiation: // each copy is answered to its source, as the underlay does
		_ = g.send(packet(kResponse, responseSize, n), from, 0, false)
	case kResponse:
		if n != g.boot<<32|g.initSeq || g.answered == n {
			return
		}
		g.answered, g.unanswered = n, 0
		g.heard(now)
		g.session = now
		g.m.HandshakeDone(now, from)
		_ = g.send(packet(kConfirm, confirmSize, n), from, 0, false)
	case kConfirm:
		g.heard(now)
		g.session = now
		g.m.HandshakeDone(now, from)
	case kData:
		if !g.blockData && !g.session.IsZero() {
			g.heard(now)
			g.received = append(g.received, now)
		}
	case kLetter:
		g.w.mail.arrive(g, binary.BigEndian.Uint64(b[8:]), b[16])
	}
}

func (g *gateway) heard(now time.Time) { g.heardAt, g.sentSince = now, time.Time{} }

// gap returns the longest time without data since began.
func (g *gateway) gap(began time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, longest := began, time.Duration(0)
	for _, at := range append(slices.Clone(g.received), time.Now()) {
		if at.Before(began) {
			continue
		}
		longest, last = max(longest, at.Sub(last)), at
	}
	return longest
}

func setTraffic(on bool, gs ...*gateway) {
	for _, g := range gs {
		g.mu.Lock()
		g.traffic = on
		g.mu.Unlock()
		g.kick()
	}
}
