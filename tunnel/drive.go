package tunnel

import (
	"context"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
)

// tick is how often the counters are read with few peers.
const tick = time.Second

// lookEvery is the interval between readings. A thousand peers are read every two seconds, which
// takes 8 ms. It stays short compared to the 5 s of [handshake.SilenceLimit].
func lookEvery(peers int) time.Duration { return tick + 2*sharedFor(peers) }

// task is an action that a peer's machine asks for.
type task struct {
	config peer.Config
	paths  []peer.Path
	handshake.Actions
}

// drive feeds the machines events, reads the counters every second or two, and carries out the
// machines' actions, until ctx ends or the device closes. Only drive polls the machines.
func (e *Engine) drive(ctx context.Context) {
	t := time.NewTimer(tick)
	defer t.Stop()
	look := time.Now().Add(tick)
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.dev.Wait():
			e.log.Warn("tunnel stopped: its network device was closed")
			return
		case <-t.C:
		case <-e.kick:
		}
		e.handleEvents(time.Now())
		if now := time.Now(); !now.Before(look) || e.isDue(now) {
			look = e.readCounters(now)
		}
		todo, next := e.poll(time.Now())
		e.deliverEvents()
		for _, d := range todo {
			if err := e.perform(d); err != nil {
				e.log.Debug("failed to dial", "peer", d.config.Name, "addresses", d.paths, "error", err)
			}
		}
		t.Reset(min(time.Until(look), next))
	}
}

// handleEvents passes the underlay's events to the machines. The device may send an initiation to a
// peer while that peer is still being added, so handleEvents waits for the change to end.
func (e *Engine) handleEvents(now time.Time) {
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
		if p := e.peers[k]; err == nil && p != nil { // otherwise it was removed meanwhile
			e.handleEvent(now, k, p, event)
		}
	}
}

// handleEvent passes an event to a peer's machine. Engine.mu is held.
func (e *Engine) handleEvent(now time.Time, k peer.PublicKey, p *peerState, event handshake.Event) {
	p.pollAt = now
	p.machine.Hear(now, event, p.reachable())
	switch event.Kind {
	case handshake.Began:
		p.shook = true
		e.queueEventLocked(Event{Peer: k, Kind: HandshakeDone, Path: event.Path})
		fallthrough
	case handshake.BeganDead:
		e.routeLocked(k, p)
	}
}

// readCounters reads the counters, and returns when to do so again.
func (e *Engine) readCounters(now time.Time) time.Time {
	r, err := e.readings.recent()
	if err != nil {
		e.log.Warn("failed to read the tunnel's state", "error", err)
		return now.Add(tick)
	}
	e.mu.Lock()
	e.observe(now, r)
	next := now.Add(lookEvery(len(e.peers)))
	e.mu.Unlock()
	e.keepStamps()
	return next
}

// isDue reports whether an initiation is due to an unmanaged peer that may have answered since
// the last reading. For managed peers the underlay reports answers.
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

// poll collects the actions of the machines that have news or whose time has come, and returns how
// long until the next one is due.
func (e *Engine) poll(now time.Time) (todo []task, next time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next = lookEvery(len(e.peers))
	for k, p := range e.peers {
		if !p.pollAt.IsZero() && !p.pollAt.After(now) {
			if a := e.pollOne(now, k, p); a.Make || a.Send != nil || a.Give != nil {
				todo = append(todo, task{p.config, p.addresses(), a})
			}
		}
		if !p.pollAt.IsZero() {
			next = min(next, p.pollAt.Sub(now))
		}
	}
	return todo, next
}

// pollOne polls one machine. Engine.mu is held.
func (e *Engine) pollOne(now time.Time, k peer.PublicKey, p *peerState) (a handshake.Actions) {
	selected := p.selected()
	a, p.pollAt = p.machine.Poll(now, p.reachable(), selected.IsValid())
	if a.Quiet {
		e.queueEventLocked(Event{Peer: k, Kind: Quiet, Path: selected})
	}
	if a.Silent {
		e.queueEventLocked(Event{Peer: k, Kind: Silent, Path: selected})
	}
	return a
}

// observeNew passes a new reading to the machines. Engine.mu is held.
func (e *Engine) observeNew(now time.Time, r reading) {
	if r.n > e.observed {
		e.observe(now, r)
	}
}

// observe passes a reading to the machines; time passes for them even without news. Engine.mu is
// held.
func (e *Engine) observe(now time.Time, r reading) {
	if r.n < e.observed {
		return // A newer reading was faster: its counters would go back.
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

// source parses the device's text for the peer's endpoint; it is invalid for the stand-in for its
// paths. The result is cached, since parsing would be most of the cost of a reading.
func (p *peerState) source(endpoint string) peer.Path {
	if endpoint != p.endpoint {
		p.endpoint = endpoint
		p.parsed, _ = peer.ParsePath(endpoint) // the zero path on an error
	}
	return p.parsed
}

// perform carries out a machine's action.
func (e *Engine) perform(d task) error {
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

// initiate points the device at all of the peer's addresses, if they may have changed, and has it
// send an initiation, which is reported as [handshake.Made].
//
// Without force the session stays and keeps carrying data, to the first address. The device then
// sends nothing if it sent an initiation or a response in the last 5 s.
func (e *Engine) initiate(d task) error {
	e.setMu.Lock()
	defer e.setMu.Unlock()
	key := d.config.PublicKey
	if err := e.checkPeer(key); err != nil {
		return err
	}
	if !d.config.Managed { // Managed peers have a fixed endpoint, and the underlay has their paths.
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
	// As a retry: the device then stops its own series of retransmissions after 90 s, and an
	// unreachable peer costs no more than our own retries.
	return p.SendHandshakeInitiation(true)
}

// checkPeer returns an error if the peer was removed meanwhile or the Engine closed.
func (e *Engine) checkPeer(key peer.PublicKey) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.checkPeerLocked(key)
}

func (e *Engine) checkPeerLocked(key peer.PublicKey) error {
	switch {
	case e.closed:
		return ErrClosed
	case e.peers[key] == nil:
		return ErrUnknownPeer
	}
	return nil
}
