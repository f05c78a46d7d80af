package simnet

import (
	"maps"
	"time"
)

// LinkOptions configure a new link. Up is from the host or NAT towards the network, Down the
// other direction.
type LinkOptions struct {
	Up, Down Conditions
	Firewall Firewall
}

// Both returns options with the same conditions in both directions.
func Both(c Conditions) LinkOptions { return LinkOptions{Up: c, Down: c} }

// Link connects a host or NAT to a network.
type Link struct {
	in       *Internet
	name     string
	up, down *direction
	firewall *firewall
	isDown   bool
	taps     []*tap
}

// Direction is a direction of a link.
type Direction bool

// The directions.
const (
	Up   Direction = true  // from the host or NAT towards the network
	Down Direction = false // from the network to the host or NAT
)

// String returns "up" or "down".
func (d Direction) String() string {
	if d == Up {
		return "up"
	}
	return "down"
}

// direction is one direction of a link.
type direction struct {
	link *Link
	way  Direction
	name string
	to   node
	shaper
	counters
	pending int // packets in the scheduler
}

type counters struct {
	packets, bytes uint64
	dropped        map[Reason]uint64
}

// Counters count the datagrams sent into one direction of a link.
type Counters struct {
	Packets uint64 // IP packets: a fragmented datagram counts as its fragments
	Bytes   uint64 // of IP packets
	Dropped map[Reason]uint64
}

type tap struct {
	f func(Datagram, Direction)
}

func newLink(in *Internet, name string, o LinkOptions, end, network node) (*Link, error) {
	l := &Link{in: in, name: name, firewall: newFirewall(o.Firewall)}
	for _, d := range []struct {
		way Direction
		c   Conditions
		to  node
		put **direction
	}{{Up, o.Up, network, &l.up}, {Down, o.Down, end, &l.down}} {
		c, err := d.c.withDefaults()
		if err != nil {
			return nil, err
		}
		label := name + " " + d.way.String()
		*d.put = &direction{
			link: l, way: d.way, name: label, to: d.to,
			shaper:   shaper{Conditions: c, dice: newDice(in.seed, label)},
			counters: counters{dropped: make(map[Reason]uint64)},
		}
	}
	return l, nil
}

// transmit sends a packet in a direction. The Internet must be locked.
func (d *direction) transmit(now time.Time, p *packet) {
	l := d.link
	fits := d.fit(p)
	pieces, size, _ := p.fragments()
	d.packets += uint64(pieces)
	d.bytes += uint64(size)
	for _, t := range l.taps {
		t.f(p.datagram(), d.way)
	}
	switch {
	case l.isDown:
		d.discard(now, p, DropLinkDown, ICMP{})
		return
	case !l.firewall.passes(now, p.datagram(), d.way == Up):
		if r := l.firewall.Reject; r != nil {
			d.dropped[DropFirewall]++
			l.in.refuse(now, d.name, p, DropFirewall, ICMP{Kind: r.Kind, By: r.By})
			return
		}
		d.discard(now, p, DropFirewall, ICMP{})
		return
	case !l.in.hop(now, d.name, p, d.Hops):
		d.dropped[DropTTL]++
		return
	}
	if !fits {
		d.discard(now, p, DropTooLarge, ICMP{Kind: PacketTooBig, MTU: d.MTU})
		return
	}
	arrives, reason := d.send(now, size, pieces, flowKey(p.src, p.dst))
	if reason != "" {
		d.discard(now, p, reason, ICMP{})
		return
	}
	if d.pending == 0 && !arrives.After(now) {
		d.to.receive(now, p)
		return
	}
	d.pending++
	l.in.sched.push(arrives, d, p)
}

// discard drops a packet; the sender only gets an error if it was too large.
func (d *direction) discard(now time.Time, p *packet, reason Reason, e ICMP) {
	d.dropped[reason]++
	if reason == DropTooLarge && !d.SilentMTU {
		d.link.in.refuse(now, d.name, p, reason, e)
		return
	}
	d.link.in.drop(now, d.name, p, reason)
}

func (l *Link) direction(way Direction) *direction {
	if way == Up {
		return l.up
	}
	return l.down
}

// SetConditions changes one direction. It does not affect datagrams in flight.
func (l *Link) SetConditions(way Direction, c Conditions) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	l.direction(way).Conditions = c
	return nil
}

// Conditions returns those of one direction, including defaults.
func (l *Link) Conditions(way Direction) Conditions {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	return l.direction(way).Conditions
}

// SetDown cuts or restores the link in both directions.
func (l *Link) SetDown(down bool) {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	l.isDown = down
}

// Down reports whether the link is cut.
func (l *Link) Down() bool {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	return l.isDown
}

// SetFirewall replaces the firewall and forgets its flows.
func (l *Link) SetFirewall(f Firewall) {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	l.firewall = newFirewall(f)
}

// Counters returns those of one direction.
func (l *Link) Counters(way Direction) Counters {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	c := l.direction(way).counters
	return Counters{Packets: c.packets, Bytes: c.bytes, Dropped: maps.Clone(c.dropped)}
}

// Tap calls f with every datagram sent into the link, also those that the link then drops, until
// the returned function is called. f must not block, call into the package, or keep the payload.
func (l *Link) Tap(f func(Datagram, Direction)) (remove func()) {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	t := &tap{f}
	l.taps = append(l.taps, t)
	return func() {
		l.in.mu.Lock()
		defer l.in.mu.Unlock()
		rest := make([]*tap, 0, len(l.taps))
		for _, x := range l.taps {
			if x != t {
				rest = append(rest, x)
			}
		}
		l.taps = rest
	}
}
