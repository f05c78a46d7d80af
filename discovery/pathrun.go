package discovery

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/probe"
	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// idleWait is how long Run sleeps if nothing is due.
	idleWait = time.Minute
	// minWait keeps a machine that asks for a past time from taking all processor time.
	minWait = time.Millisecond
	// maxPolls bounds how often a machine is polled in a row, since each sent probe may change what
	// it wants next.
	maxPolls = 8
	// maxRound bounds the peers served in one step, so that the first one's probes do not wait for
	// many others.
	maxRound = 64
)

// work is what to do for a peer once the lock is released.
type work struct {
	key     peer.PublicKey
	name    string
	actions []path.Actions
	sends   []send
	resolve []string
	before  shown // selected before
	after   shown
	reason  string
}

// shown is a path and its name in logs: the names of allocations mean nothing to people.
type shown struct {
	peer.Path
	label string
}

// send is a probe that the machine considers sent.
type send struct {
	path.Probe
	packet []byte
	tx     stunwire.TxID
}

// Run finds and keeps paths until ctx ends, and returns ctx's cause. It owns its goroutines and
// waits for them. A pathfinder runs once.
func (f *Pathfinder) Run(ctx context.Context) error {
	if f.running.Swap(true) {
		return ErrRunning
	}
	return drive(ctx, f.wake, f.step)
}

// step does what is due and returns the time of the next step.
func (f *Pathfinder) step(ctx context.Context, resolving *sync.WaitGroup) time.Time {
	f.refreshLocal()
	f.mu.Lock()
	now := time.Now()
	var duties []work
	for len(duties) < maxRound {
		p, due := f.queue.first(now)
		if !due {
			break
		}
		duties = append(duties, f.pollLocked(now, p))
	}
	permit, permitChanged := f.permitLocked()
	next := now.Add(idleWait)
	if len(f.queue) > 0 && f.queue[0].due.Before(next) {
		next = f.queue[0].due
	}
	f.mu.Unlock()

	if permitChanged {
		f.o.Permit(permit) // before sending to these addresses
	}
	for _, d := range duties {
		f.perform(d)
		for _, host := range d.resolve {
			resolving.Go(func() { f.resolveName(ctx, d.key, host) })
		}
	}
	return next
}

// refreshLocal passes what this side offers to the machines if it changed.
func (f *Pathfinder) refreshLocal() {
	f.mu.Lock()
	due := f.localDue
	f.localDue = false
	f.mu.Unlock()
	if !due {
		return
	}
	local := f.o.Local()
	hosts, err := local.Hosts, error(nil)
	if f.o.Own != nil {
		hosts, err = f.o.Own()
	}
	if err != nil {
		f.log.Warn("not dialling announced candidates: this host's addresses are unknown", "error", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.local, f.localKnown, f.hosts, f.hostsKnown = local, true, hosts, err == nil
	for _, p := range f.peers {
		p.m.SetLocal(now, local)
		p.updateRemote(now, f.refusedLocked)
		f.dueLocked(p, now)
	}
}

// pollLocked polls a peer's machine, makes its probes and sets its next deadline.
func (f *Pathfinder) pollLocked(now time.Time, p *pathPeer) work {
	d := work{key: p.key, name: p.name, before: shown{p.selected, p.label}}
	next := now
	for range maxPolls {
		var a path.Actions
		a, next = p.m.Poll(now)
		if a.Permit != nil {
			p.permit = a.Permit
			f.permitDue = true
		}
		if a.Routing != nil {
			p.selected, p.label = a.Routing.Selected, p.m.Label(a.Routing.Selected)
		}
		d.actions = append(d.actions, a)
		for _, pr := range a.Probes {
			packet, tx, err := f.prober.Request(p.key, probe.RequestOptions{PathID: pr.PathID, Size: pr.Size, Flags: pr.Flags})
			p.m.Sent(now, pr.ID, tx, err)
			if err != nil {
				f.counts.Unsent++
				continue
			}
			f.counts.Sent++
			d.sends = append(d.sends, send{pr, packet, tx})
		}
		if len(a.Probes) == 0 {
			break
		}
		next = now // what was sent may change what is due, so poll again
	}
	if d.after = (shown{p.selected, p.label}); d.before.IsValid() != d.after.IsValid() {
		d.reason = p.m.Snapshot().Reason
		if !d.after.IsValid() {
			p.resolveSoon(now, anyName)
		}
	}
	var resolveAt time.Time
	d.resolve, resolveAt = p.toResolve(now)
	if !resolveAt.IsZero() && resolveAt.Before(next) {
		next = resolveAt
	}
	if soonest := now.Add(minWait); next.Before(soonest) {
		next = soonest
	}
	f.queue.set(p, next)
	return d
}

// perform does what a machine asked for.
func (f *Pathfinder) perform(d work) {
	for _, a := range d.actions {
		if a.Routing != nil {
			f.o.Route(d.key, *a.Routing)
		}
		if a.Handshake {
			f.o.Handshake(d.key)
		}
		if a.CheckRelays {
			f.o.CheckRelays()
		}
		for _, m := range a.Messages {
			f.o.Tell(d.key, m)
		}
		for _, n := range a.Notes {
			f.log.Info("path changed", "peer", d.name, "event", n.Event, "reason", n.Reason)
			if f.o.Noted != nil {
				f.o.Noted(d.key, n)
			}
		}
	}
	switch {
	case !d.before.IsValid() && d.after.IsValid():
		f.log.Info("peer is reachable", "peer", d.name, "path", d.after.label, "reason", d.reason)
	case d.before.IsValid() && !d.after.IsValid():
		f.log.Warn("peer is no longer reachable", "peer", d.name, "path", d.before.label, "reason", d.reason)
	}
	for _, s := range d.sends {
		if err := f.o.Send(s.packet, s.Path, s.TTL, s.DontFragment); err != nil {
			f.unsent(d.key, s, err)
		}
	}
}

// unsent reports to the machine that the socket or the relay rejected a probe.
func (f *Pathfinder) unsent(k peer.PublicKey, s send, err error) {
	f.mu.Lock()
	f.counts.Sent--
	f.counts.Unsent++
	f.mu.Unlock()
	f.input(k, func(now time.Time, m *path.Machine) { m.Sent(now, s.ID, s.tx, err) })
}

func (f *Pathfinder) resolveName(ctx context.Context, k peer.PublicKey, host string) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := f.o.Resolve(ctx, host)
	f.resolved(k, host, addrs, err)
}

// resolved records the result of a resolution. After a failure the last good answer stays in use,
// if there was one.
func (f *Pathfinder) resolved(k peer.PublicKey, host string, addrs []netip.Addr, err error) {
	f.mu.Lock()
	p := f.peers[k]
	if p == nil {
		f.mu.Unlock()
		return
	}
	now := time.Now()
	type failure struct {
		text, why string
		next      time.Time
		holds     bool // the previous addresses are still used
	}
	var failed []failure
	for _, n := range p.names {
		if n.host != host || !n.resolving {
			continue
		}
		before := n.failures
		n.resolved(now, addrs, err)
		if n.err != "" && before == 0 {
			failed = append(failed, failure{n.text, n.err, n.due, len(n.addrs) > 0})
		}
	}
	p.updateRemote(now, f.refusedLocked)
	f.dueLocked(p, now)
	name := p.name
	f.mu.Unlock()
	f.wake.Set()
	for _, x := range failed {
		if x.holds {
			f.log.Warn("failed to resolve a peer's endpoint; using the last good answer", "peer", name, "endpoint", x.text, "error", x.why)
			continue
		}
		f.log.Warn("failed to resolve a peer's endpoint", "peer", name, "endpoint", x.text, "error", x.why,
			"retry", x.next.UTC().Format(time.RFC3339))
	}
}
