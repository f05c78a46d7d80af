package underlay

import (
	"slices"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// crossingTime is how long an initiation of ours may be on its way, and its response on
	// the way back, for a peer's to have crossed it: most round trips on earth are shorter.
	// By this, a peer whose initiation alone gets through waits longer at the most.
	crossingTime = 250 * time.Millisecond
	// mostHeld bounds what is held of one peer's, forged ones among them. What comes after
	// them goes to the device at once.
	mostHeld = 4
)

// crossings holds back initiations that may have crossed one of ours. Two that cross undo
// each other: each side answers the other's, forgets its own by that, and then takes the
// answer for one to nothing; only a retry seconds later fixes it. So one side, which both
// know by their keys, does not answer at once. If its own initiation is answered, the
// other was needless. If not, it may have been lost, and what was held goes to the device.
//
// One that comes after a response to ours has not crossed it: the peer gives up with it what
// it has just answered, and waits for us. It is held, on either side, only until the device
// has taken that response: it would work on both at once, and might get neither right.
//
// That is done only on paths that are known to work, selected or proved by a handshake:
// elsewhere an initiation of ours has most likely not been heard, by a peer that does not
// know us yet or through a NAT that is still closed, and waiting for its answer is in vain.
type crossings struct {
	mu   sync.Mutex
	held map[*fanOut]*heldBack
}

type heldBack struct {
	timer       *time.Timer
	initiations []heldInitiation
}

type heldInitiation struct {
	relayed
	// late says that a response to our initiation had come before.
	late bool
	// copies are where it came from besides.
	copies []conn.Endpoint
}

func (c *crossings) init() { c.held = make(map[*fanOut]*heldBack) }

// Insist makes the gateway's own initiations to a managed peer go before the peer's, when
// they cross. Only one side of the two may do so: otherwise both wait in vain, for 250 ms.
func (b *Bind) Insist(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fanOut(id).insists.Store(true)
}

// holdBack takes an initiation if one of ours to the same peer is on its way that will make
// it needless. A further copy of one that is held is not held as well.
func (b *Bind) holdBack(m []byte, from conn.Endpoint, now time.Time) bool {
	f, remaining, late := b.handshakes.crossed(pathOf(from), now)
	if f == nil {
		return false
	}
	return b.hold(f, remaining, heldInitiation{relayed: relayed{&m, from}, late: late})
}

// hold holds an initiation back, of which it keeps its own copy, or another path of one that
// is held already.
func (b *Bind) hold(f *fanOut, remaining time.Duration, in heldInitiation) bool {
	c := &b.crossings
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held[f]
	if h == nil {
		h = &heldBack{}
		c.held[f] = h
		h.timer = time.AfterFunc(remaining, func() { b.release(f, h) })
	}
	if i := slices.IndexFunc(h.initiations, func(d heldInitiation) bool { return sameHandshake(*d.buf, *in.buf) }); i >= 0 {
		if d := &h.initiations[i]; len(d.copies) < answerCopies {
			d.copies = append(d.copies, in.from)
		}
		return true
	}
	if len(h.initiations) == mostHeld {
		return false // Those before may be forged, and this one the peer's.
	}
	data := append([]byte(nil), *in.buf...)
	in.buf = &data
	h.initiations = append(h.initiations, in)
	return true
}

// crossed gives the peer to whom the path works and to whom an initiation of ours may still
// be on its way, if it insists, or a response be with the device, which is late; and for how
// long it may. Without such a peer it gives nil.
func (h *handshakes) crossed(path peer.Path, now time.Time) (f *fanOut, remaining time.Duration, late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.begun {
		if f.handshake.undone {
			continue // The device has forgotten ours, and takes no answer to it.
		}
		since := f.handshake.begunAt
		if late = len(f.handshake.responses) > 0; late {
			since = f.handshake.responseAt
		}
		remaining = crossingTime - now.Sub(since)
		if remaining > 0 && (late || f.insists.Load()) && f.works(path) {
			return f, remaining, late
		}
	}
	return nil, 0, false
}

// works reports whether an initiation has been sent over the path, and others before it got
// through or probes did.
func (f *fanOut) works(p peer.Path) bool {
	f.mu.Lock()
	works := f.selected != nil && pathOf(f.selected) == p || f.learned != nil && pathOf(f.learned) == p
	f.mu.Unlock()
	return works && slices.ContainsFunc(*f.targets.Load(), func(ep conn.Endpoint) bool { return pathOf(ep) == p })
}

// release gives the device what was held of a peer's, unless it was dismissed meanwhile.
func (b *Bind) release(f *fanOut, h *heldBack) {
	if b.crossings.take(f, h) != nil {
		b.give(h.initiations)
	}
}

// settle ends the waiting of what is held of a peer's: our own initiation was answered. What
// crossed it is needless then.
func (b *Bind) settle(f *fanOut) {
	if h := b.crossings.take(f, nil); h != nil {
		b.give(slices.DeleteFunc(h.initiations, func(d heldInitiation) bool { return !d.late }))
	}
}

// give hands the device what was held.
func (b *Bind) give(initiations []heldInitiation) {
	for _, d := range initiations {
		m := *d.buf
		for _, from := range d.copies {
			b.dropCopy(m, from)
		}
		if !b.copies.claim(m, time.Now()) {
			b.dropCopy(m, d.from) // It also came over a path that nothing is held back on.
			continue
		}
		select {
		case b.relays.queue <- d.relayed:
		default:
			b.crowdedOut(m)
		}
	}
}

// take ends the holding of a peer's, if that is still the one that is meant, nil for any. It
// gives what it ended.
func (c *crossings) take(f *fanOut, meant *heldBack) *heldBack {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held[f]
	if h == nil || meant != nil && meant != h {
		return nil
	}
	h.timer.Stop()
	delete(c.held, f)
	return h
}

// dismiss drops what is held of a peer's.
func (c *crossings) dismiss(f *fanOut) { c.take(f, nil) }

// close drops everything that is held.
func (c *crossings) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.held {
		h.timer.Stop()
	}
	clear(c.held)
}
