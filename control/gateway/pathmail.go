package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// mailTry bounds one try to hand a message over: two round trips inside the tunnel,
	// with a handshake before them and a segment or two lost.
	mailTry = 5 * time.Second
	// mailTries is how often a message is tried. A later one says the same anew.
	mailTries = 3
	// mailQueue bounds what waits for one peer.
	mailQueue = 8
	// mailRefused is how long a peer that finds no paths is left alone.
	mailRefused = 5 * time.Minute
)

// pathMail hands what the path finder has to say to its peers' path finders, in-band, in
// order. There is one goroutine for each peer that there is something for.
type pathMail struct {
	g *Gateway

	mu      sync.Mutex
	boxes   map[peer.PublicKey]*mailbox
	stopped bool
	wg      sync.WaitGroup
}

type mailbox struct {
	waiting []path.Message
	// refused is when the peer said that it takes no such messages.
	refused time.Time
	busy    bool
}

func newPathMail(g *Gateway) *pathMail {
	return &pathMail{g: g, boxes: map[peer.PublicKey]*mailbox{}}
}

// post queues a message. It does not block. When too many wait, the oldest goes: each
// names all candidates, and a punch that is late has failed.
func (m *pathMail) post(to peer.PublicKey, message path.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	box := m.boxes[to]
	if box == nil {
		box = &mailbox{}
		m.boxes[to] = box
	}
	if time.Since(box.refused) < mailRefused { // The newest is kept: it says everything.
		box.waiting = append(box.waiting[:0], message)
		return
	}
	if len(box.waiting) == mailQueue {
		box.waiting = box.waiting[1:]
	}
	box.waiting = append(box.waiting, message)
	m.startLocked(to, box)
}

func (m *pathMail) startLocked(to peer.PublicKey, box *mailbox) {
	if !box.busy {
		box.busy = true
		m.wg.Go(func() { m.deliver(to, box) })
	}
}

// spoke tells that a peer has sent a message of its own: it takes ours then.
func (m *pathMail) spoke(from peer.PublicKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	box := m.boxes[from]
	if m.stopped || box == nil || box.refused.IsZero() {
		return
	}
	box.refused = time.Time{}
	if len(box.waiting) > 0 {
		m.startLocked(from, box)
	}
}

// deliver empties a mailbox.
func (m *pathMail) deliver(to peer.PublicKey, box *mailbox) {
	for {
		m.mu.Lock()
		if len(box.waiting) == 0 || m.stopped {
			box.busy = false
			m.mu.Unlock()
			return
		}
		message := box.waiting[0]
		box.waiting = box.waiting[1:]
		m.mu.Unlock()
		err := m.hand(to, message)
		if errors.Is(err, auth.ErrRequest) {
			m.mu.Lock()
			box.refused = time.Now()
			if len(box.waiting) == 0 {
				box.waiting = []path.Message{message}
			} else {
				box.waiting = box.waiting[len(box.waiting)-1:]
			}
			box.busy = false
			m.mu.Unlock()
			return
		}
		if err != nil {
			m.g.log.Debug("a message about paths was not delivered", "peer", m.g.nameOf(to), "error", err)
		}
	}
}

// hand delivers one message, in a few tries while nobody answers.
func (m *pathMail) hand(to peer.PublicKey, message path.Message) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("write a message about paths: %w", err)
	}
	client := auth.NewClient(peer.OverlayAddr(to), m.g.plane.stack.DialContext)
	for range mailTries {
		ctx, cancel := context.WithTimeout(m.g.ctx, mailTry)
		err = client.Path(ctx, body)
		cancel()
		// A punch has its time; whoever is told of it later is told wrong.
		if err == nil || m.g.ctx.Err() != nil || message.Punch != nil || !errors.Is(err, auth.ErrUnreachable) {
			return err
		}
	}
	return err
}

// forget drops what waits for a peer that is gone.
func (m *pathMail) forget(k peer.PublicKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if box := m.boxes[k]; box != nil {
		box.waiting = nil
		delete(m.boxes, k)
	}
}

// close drops what waits, and waits for what is under way; the gateway's context has
// ended by then.
func (m *pathMail) close() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.wg.Wait()
}

// nameOf is what the peer with the key is called here; its overlay address when it is
// gone.
func (g *Gateway) nameOf(k peer.PublicKey) string {
	if m := g.roster.Load().byKey[k]; m != nil {
		return m.name
	}
	return peer.OverlayAddr(k).String()
}
