package underlay

import (
	"bytes"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/handshake"
)

// inTurn reports whether to give the device an admitted message now. An initiation that may have
// crossed one of ours waits; a copy only has its path noted.
func (b *Bind) inTurn(m []byte, from conn.Endpoint, now time.Time) bool {
	switch {
	case m[0] == typeCookieReply:
		return true
	case b.copies.has(m, now):
	case m[0] == typeInitiation && b.waits(m, from):
		return false
	case b.copies.claim(m, now):
		return true
	}
	b.dropCopy(m, from)
	return false
}

// waits passes an initiation to the handshake machine, if it arrived on a working path of a peer
// that one of ours is on its way to.
func (b *Bind) waits(m []byte, from conn.Endpoint) bool {
	f := b.handshakes.crossed(pathOf(from))
	return f != nil && b.events.add(handshake.Event{Kind: handshake.Arrived, Peer: f.id, Initiation: handshake.Initiation{Message: bytes.Clone(m), From: from}})
}

// dropCopy notes the path of a copy that is not given to the device.
func (b *Bind) dropCopy(m []byte, from conn.Endpoint) {
	b.note(m, from)
	b.counters.copies.Add(1)
}

// Deliver gives the device an initiation that waited, unless a copy of it has meanwhile arrived on
// a path where none waits. Then its path is noted.
func (b *Bind) Deliver(in handshake.Initiation) {
	if !b.copies.claim(in.Message, time.Now()) {
		b.dropCopy(in.Message, in.From)
		return
	}
	select {
	case b.relays.queue <- relayed{&in.Message, in.From}:
	default:
		b.crowdedOut(in.Message)
	}
}
