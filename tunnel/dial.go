package tunnel

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
)

// tick is how often the counters are read, of few peers.
const tick = time.Second

// lookEvery is that of so many: a thousand are looked at every two seconds, which takes 8 ms.
// It is never long against the 5 s of [silenceLimit].
func lookEvery(peers int) time.Duration { return tick + 2*serves(peers) }

// dial is a handshake initiation to be sent.
type dial struct {
	key   peer.PublicKey
	name  string
	paths []peer.Path
	// managed peers have their endpoint for good, and the underlay has their paths.
	managed bool
	// force sends it also within 5 s of the last one, by giving up the session.
	force   bool
	attempt int
}

// watchPeers reads the counters every second or two, and dials who is due, until ctx ends or
// the device does.
func (e *Engine) watchPeers(ctx context.Context) {
	t := time.NewTimer(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.dev.Wait():
			e.log.Warn("the tunnel has stopped: its network device was closed")
			return
		case <-e.told:
			e.tell()
			continue
		case <-t.C:
		case <-e.kick:
		}
		begun := time.Now()
		if r, err := e.read(begun); err != nil {
			e.log.Warn("reading the tunnel's state failed", "err", err)
			t.Reset(tick)
		} else {
			t.Reset(e.round(time.Now(), r, !r.at.Before(begun)))
		}
	}
}

// read is a reading for a round that begins. It is new when somebody is due whose session
// would be given up: an answer may have come since the last one. Of many peers, who fall
// due one after the other, new ones are made as often as five times while one serves; who
// is due in between waits for the next.
func (e *Engine) read(begun time.Time) (reading, error) {
	r, err := e.readings.lately()
	if err != nil || !r.at.Before(begun) || begun.Sub(e.rereadAt) < putOff(r) || !e.forces(time.Now(), r) {
		return r, err
	}
	e.rereadAt = begun
	return e.readings.now()
}

// putOff is the time between new readings for those whose session would be given up.
func putOff(r reading) time.Duration { return serves(len(r.state.Peers)) / 5 }

// forces reports whether, as far as a reading tells, somebody is due whose session would be
// given up.
func (e *Engine) forces(now time.Time, r reading) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observeNew(now, r)
	for _, p := range e.peers {
		if p.watch.due(now) && p.watch.force(now) && len(p.addresses()) > 0 {
			return true
		}
	}
	return false
}

// round takes in the state, which is of this moment or not, dials who is due and gives the
// time until the next round.
func (e *Engine) round(now time.Time, r reading, current bool) time.Duration {
	dials, next := e.take(now, r, current)
	e.keepStamps()
	e.tell()
	for _, d := range dials {
		if err := e.dial(d); err != nil {
			e.log.Debug("dialling failed", "peer", d.name, "attempt", d.attempt, "err", err)
		}
	}
	return next
}

// take decides whom to dial now, and how long until somebody else is due. Sessions are
// given up by a current reading only.
func (e *Engine) take(now time.Time, r reading, current bool) (dials []dial, next time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observe(now, r)
	next = lookEvery(len(e.peers))
	for key, p := range e.peers {
		w := &p.watch
		if p.paths != nil && p.paths.Selected.IsValid() {
			if w.quiet(now) {
				e.tellLocked(Event{Peer: key, Kind: Quiet, Path: p.paths.Selected})
			}
			if w.silent(now) {
				e.tellLocked(Event{Peer: key, Kind: Silent, Path: p.paths.Selected})
			}
		}
		if w.due(now) {
			d := p.dial(key)
			if len(d.paths) == 0 { // Only the peer can dial.
				w.nextTry = time.Time{}
				continue
			}
			if e.underway(p, now, e.yields(key)) {
				next = min(next, w.nextTry.Sub(now))
				continue
			}
			if d.force = w.force(now); d.force && !current {
				next = min(next, putOff(r))
				continue
			}
			w.dialled(now, e.yields(key))
			d.attempt = w.attempts
			dials = append(dials, d)
		}
		if !w.nextTry.IsZero() {
			next = min(next, w.nextTry.Sub(now))
		}
	}
	return dials, next
}

// underway takes in what the device has sent a managed peer by itself since the last dial, as it
// does when there is data, and reports whether to wait for an answer to that. Another initiation
// would make it void, and the peer takes but one within 20 ms. One that went over all paths that
// there are is as good as a dial; for a path that came later there is one once the first has had
// its time.
func (e *Engine) underway(p *peerState, now time.Time, yields bool) bool {
	if !p.config.Managed {
		return false
	}
	sent, nowhere := e.bind.Initiation(p.id)
	// The device makes no other one for 5 s, unless the next dial has it do so.
	p.watch.begun = p.watch.begun || nowhere
	if !sent.After(p.dialSent) || now.Sub(sent) >= newPathWait {
		return false
	}
	if sent.Before(p.pathsSince) {
		p.watch.begun, p.watch.nextTry = true, sent.Add(newPathWait)
	} else {
		p.watch.dialled(now, yields)
	}
	return true
}

// dial is an initiation to the peer.
func (p *peerState) dial(key peer.PublicKey) dial {
	return dial{key: key, name: p.config.Name, paths: p.addresses(), managed: p.config.Managed}
}

// yields tells which of the two sides gives way to the other: the one with the greater
// key.
func (e *Engine) yields(to peer.PublicKey) bool { return bytes.Compare(e.publicKey[:], to[:]) > 0 }

// observeNew feeds the watches with a reading that they do not know. Engine.mu is held.
func (e *Engine) observeNew(now time.Time, r reading) {
	if r.n > e.observed {
		e.observe(now, r)
	}
}

// observe feeds the watches, for which time passes also without news. Engine.mu is held.
func (e *Engine) observe(now time.Time, r reading) {
	if r.n < e.observed {
		return // Others were faster: its counters would go back.
	}
	e.observed = r.n
	for _, s := range r.state.Peers {
		if p := e.peers[s.PublicKey]; p != nil {
			p.watch.observe(now, s)
			p.shook = p.shook || p.watch.shookAt.Equal(now)
		}
	}
}

// dial points the device at all of the peer's addresses, if it may have others in mind,
// and makes it send an initiation.
//
// Without force the session stays as it is and keeps carrying data, to the first
// address, and nothing is sent if the device has sent an initiation in the last 5 s:
// it repeats that by itself.
func (e *Engine) dial(d dial) error {
	e.setMu.Lock()
	defer e.setMu.Unlock()
	if err := e.still(d.key); err != nil {
		return fmt.Errorf("dial peer %q: %w", d.name, err)
	}
	if !d.managed {
		e.bind.SetCandidates(endpointID(d.key), d.paths)
		change := uapi.PeerConfig{PublicKey: d.key, UpdateOnly: true, Endpoint: endpointText(d.key)}
		if err := e.configure(uapi.Config{Peers: []uapi.PeerConfig{change}}); err != nil {
			return fmt.Errorf("dial peer %q: %w", d.name, err)
		}
	}
	p := e.dev.LookupPeer(device.NoisePublicKey(d.key))
	if p == nil {
		return fmt.Errorf("dial peer %q: %w", d.name, ErrClosed) // Only a closed device drops peers by itself.
	}
	e.log.Debug("dialling", "peer", d.name, "addresses", d.paths, "attempt", d.attempt)
	if d.force {
		e.giveUp(p, d)
	}
	// As a retry: the device then ends its own series of repetitions after 90 s, and
	// an unreachable peer costs no more than ours.
	err := p.SendHandshakeInitiation(true)
	e.mu.Lock()
	if s := e.peers[d.key]; s != nil {
		s.dialSent = time.Now()
	}
	e.mu.Unlock()
	if err != nil {
		return fmt.Errorf("dial peer %q: %w", d.name, err)
	}
	return nil
}

// giveUp ends all sessions with the peer on our side. Engine.setMu is held.
func (e *Engine) giveUp(p *device.Peer, d dial) {
	p.ExpireCurrentKeypairs()
	e.bind.GaveUp(endpointID(d.key))
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.peers[d.key]; s != nil {
		s.watch.givenUp(time.Now(), d.managed)
	}
}

// still fails when the peer was removed meanwhile, or the Engine closed.
func (e *Engine) still(key peer.PublicKey) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stillLocked(key)
}

func (e *Engine) stillLocked(key peer.PublicKey) error {
	switch {
	case e.closed:
		return ErrClosed
	case e.peers[key] == nil:
		return ErrUnknownPeer
	}
	return nil
}
