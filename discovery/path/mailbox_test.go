package path_test

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/discovery/path"
)

// mailbox carries messages in-band. Like a request over TCP inside the tunnel, a letter takes one
// and a half round trips over the selected paths of both sides, and each leg is repeated until
// the next one arrives. Its lock is taken after a gateway's.
type mailbox struct {
	mu      sync.Mutex
	last    uint64
	letters map[uint64]*letter
}

type letter struct {
	from      *gateway
	message   path.Message
	leg       byte
	delivered bool
}

// Legs of a letter.
const (
	legAsk byte = iota // from the sender: may I?
	legMay             // from the receiver
	legSay             // from the sender: the message
	legGot             // from the receiver
)

const (
	letterRepeat = 250 * time.Millisecond
	letterTries  = 40
	letterSize   = 200
)

// post sends a letter. The sender is locked.
func (mb *mailbox) post(from *gateway, m path.Message) {
	mb.mu.Lock()
	mb.last++
	id := mb.last
	mb.letters[id] = &letter{from: from, message: m}
	mb.mu.Unlock()
	mb.leg(from, id, legAsk)
	from.w.running.Go(func() {
		for range letterTries {
			select {
			case <-from.done:
				return
			case <-time.After(letterRepeat):
			}
			from.mu.Lock()
			leg := mb.at(id)
			if leg != legGot {
				mb.leg(from, id, leg)
			}
			from.mu.Unlock()
			if leg == legGot {
				break
			}
		}
		mb.mu.Lock()
		delete(mb.letters, id)
		mb.mu.Unlock()
	})
}

func (mb *mailbox) at(id uint64) byte {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.letters[id].leg
}

// leg sends one leg over the selected path of g, which is locked.
func (mb *mailbox) leg(g *gateway, id uint64, leg byte) {
	if !g.routing.Selected.IsValid() || g.session.IsZero() {
		return
	}
	b := packet(kLetter, letterSize, id)
	b[16] = leg
	_ = g.send(b, g.routing.Selected, 0, false)
}

// arrive handles a leg at g, which is locked.
func (mb *mailbox) arrive(g *gateway, id uint64, leg byte) {
	if g.session.IsZero() {
		return
	}
	g.heard(time.Now())
	mb.mu.Lock()
	l := mb.letters[id]
	deliver := false
	if l != nil {
		if leg == legSay && !l.delivered {
			l.delivered, deliver = true, true
		}
		if l.from == g {
			l.leg = max(l.leg, leg+1)
			if leg == legGot {
				l.leg = legGot
			}
		}
	}
	mb.mu.Unlock()
	if l == nil {
		return
	}
	if deliver && !g.site.noProbe {
		g.m.Receive(time.Now(), l.message)
	}
	if leg != legGot {
		mb.leg(g, id, leg+1)
	}
}
