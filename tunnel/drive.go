package tunnel

import (
	"context"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
)

// tick is how often the counters are read, of few peers.
const tick = time.Second

// lookEvery is that of so many: a thousand are looked at every two seconds, which takes 8 ms.
// It is never long against the 5 s of [handshake.SilenceLimit].
func lookEvery(peers int) time.Duration { return tick + 2*serves(peers) }

// duty is what a peer's machine wants done.
type duty struct {
	config peer.Config
	paths  []peer.Path
	handshake.Actions
}

// drive tells the machines what happens, reads the counters every second or two, and does what
// the machines want, until ctx ends or the device does. Nobody else asks them what to do.
func (e *Engine) drive(ctx context.Context) {
	t := time.NewTimer(tick)
	defer t.Stop()
	look := time.Now().Add(tick)
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.dev.Wait():
			e.log.Warn("the tunnel has stopped: its network device was closed")
			return
		case <-t.C:
		case <-e.kick:
		}
		e.hear(time.Now())
		if now := time.Now(); !now.Before(look) || e.isDue(now) {
			look = e.look(now)
		}
		todo, next := e.poll(time.Now())
		e.tell()
		for _, d := range todo {
			if err := e.perform(d); err != nil {
				e.log.Debug("dialling failed", "peer", d.config.Name, "addresses", d.paths, "err", err)
			}
		}
		t.Reset(min(time.Until(look), next))
	}
}

// hear tells the machines what the underlay has seen. The device may make an initiation to a peer
// while that is being added: the change ends first.
func (e *Engine) hear(now time.Time) {
	events := e.bind.Events()
	if len(events) == 0 {
		return
	}
	e.setMu.Lock()
	defer e.setMu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range events {
		k, err := peer.ParsePublicKey(event.Peer)
		if p := e.peers[k]; err == nil && p != nil { // Else it was removed meanwhile.
			e.hearOf(now, k, p, event)
		}
	}
}

// hearOf tells a peer's machine of an event. Engine.mu is held.
func (e *Engine) hearOf(now time.Time, k peer.PublicKey, p *peerState, event handshake.Event) {
	p.pollAt = now
	p.machine.Hear(now, event, p.reachable())
	switch event.Kind {
	case handshake.Began:
		p.shook = true
		e.tellLocked(Event{Peer: k, Kind: HandshakeDone, Path: event.Path})
		fallthrough
	case handshake.BeganDead:
		e.routeLocked(k, p)
	}
}

// look reads the counters, and gives when to do so again.
func (e *Engine) look(now time.Time) time.Time {
	r, err := e.readings.lately()
	if err != nil {
		e.log.Warn("reading the tunnel's state failed", "err", err)
		return now.Add(tick)
	}
	e.mu.Lock()
	e.observe(now, r)
	next := now.Add(lookEvery(len(e.peers)))
	e.mu.Unlock()
	e.keepStamps()
	return next
}

// isDue reports whether somebody is to be sent an initiation who may have answered since the
// last reading: of managed peers the underlay tells.
func (e *Engine) isDue(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.peers {
		if !p.config.Managed && p.machine.Due(now) {
			return true
		}
	}
	return false
}

// poll asks the machines what to do of whom something has become known, or whose time has come,
// and gives how long until the next one's.
func (e *Engine) poll(now time.Time) (todo []duty, next time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next = lookEvery(len(e.peers))
	for k, p := range e.peers {
		if !p.pollAt.IsZero() && !p.pollAt.After(now) {
			if a := e.pollOne(now, k, p); a.Make || a.Send != nil || a.Give != nil {
				todo = append(todo, duty{p.config, p.addresses(), a})
			}
		}
		if !p.pollAt.IsZero() {
			next = min(next, p.pollAt.Sub(now))
		}
	}
	return todo, next
}

// pollOne asks one of them. Engine.mu is held.
func (e *Engine) pollOne(now time.Time, k peer.PublicKey, p *peerState) (a handshake.Actions) {
	selected := p.selected()
	a, p.pollAt = p.machine.Poll(now, p.reachable(), selected.IsValid())
	if a.Quiet {
		e.tellLocked(Event{Peer: k, Kind: Quiet, Path: selected})
	}
	if a.Silent {
		e.tellLocked(Event{Peer: k, Kind: Silent, Path: selected})
	}
	return a
}

// observeNew tells the machines of a reading that they do not know. Engine.mu is held.
func (e *Engine) observeNew(now time.Time, r reading) {
	if r.n > e.observed {
		e.observe(now, r)
	}
}

// observe tells the machines of a reading; time passes for them also without news. Engine.mu is
// held.
func (e *Engine) observe(now time.Time, r reading) {
	if r.n < e.observed {
		return // Others were faster: its counters would go back.
	}
	e.observed = r.n
	for _, s := range r.state.Peers {
		p := e.peers[s.PublicKey]
		if p == nil {
			continue
		}
		p.pollAt = now
		p.machine.Observe(now, handshake.Reading{Rx: s.RxBytes, Tx: s.TxBytes, LastHandshake: s.LastHandshake, Source: p.source(s.Endpoint)})
		p.shook = p.shook || p.machine.ShookAt.Equal(now)
	}
}

// source reads the device's text for the peer's endpoint, invalid for the stand-in of its paths.
// Reading it again each time would cost most of a reading.
func (p *peerState) source(endpoint string) peer.Path {
	if endpoint != p.endpoint {
		p.endpoint = endpoint
		p.parsed, _ = peer.ParsePath(endpoint) // the zero path on an error
	}
	return p.parsed
}

// perform does what a machine wants done.
func (e *Engine) perform(d duty) error {
	for _, in := range d.Give {
		e.bind.Deliver(in)
	}
	switch {
	case d.Send != nil:
		e.log.Debug("sending a handshake initiation", "peer", d.config.Name, "addresses", d.paths)
		return e.bind.Initiate(endpointID(d.config.PublicKey), d.Send)
	case d.Make:
		return e.initiate(d)
	}
	return nil
}

// initiate points the device at all of the peer's addresses, if it may have others in mind,
// and has it make an initiation, which comes back as [handshake.Made].
//
// Without force the session stays as it is and keeps carrying data, to the first
// address, and the device makes none if it has made one or answered in the last 5 s.
func (e *Engine) initiate(d duty) error {
	e.setMu.Lock()
	defer e.setMu.Unlock()
	key := d.config.PublicKey
	if err := e.still(key); err != nil {
		return err
	}
	if !d.config.Managed { // Others have their endpoint for good, and the underlay has their paths.
		e.bind.SetCandidates(endpointID(key), d.paths)
		change := uapi.PeerConfig{PublicKey: key, UpdateOnly: true, Endpoint: endpointText(key)}
		if err := e.configure(uapi.Config{Peers: []uapi.PeerConfig{change}}); err != nil {
			return err
		}
	}
	p := e.dev.LookupPeer(device.NoisePublicKey(key))
	if p == nil {
		return ErrClosed // Only a closed device drops peers by itself.
	}
	if d.Force {
		p.ExpireCurrentKeypairs()
		e.bind.GaveUp(endpointID(key))
	}
	// As a retry: the device then ends its own series of repetitions after 90 s, and
	// an unreachable peer costs no more than ours.
	return p.SendHandshakeInitiation(true)
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
