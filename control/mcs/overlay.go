package mcs

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
)

const (
	// FirstPort and LastPort are the overlay ports of services of clusters. They are below those that
	// the network stack takes for connections of its own.
	FirstPort, LastPort = 10000, 15999
	// FirstListener and LastListener are the ports at which imported services are listened for, on the
	// gateway's own address. They are below those that the kernel takes for connections.
	FirstListener, LastListener = 20000, 29999
	// Spread is how many ports in a row a service with session affinity has: each client has one of
	// them, and each of them one backend.
	Spread = 16
	// rest is how long a port is nobody's before it is somebody else's. A peer that was away for
	// longer hears of it before it can dial: what it is told goes first.
	rest = time.Hour
	// share is how many ports of a protocol the services of one namespace have, those that rest included:
	// no namespace takes all.
	share = (LastPort - FirstPort + 1) / 2
)

// Lease is the overlay ports of one port of a service, or of one backend of a headless one.
type Lease struct {
	Key   string
	Ports api.Ports
	// Freed is since when they are nobody's; zero while they are somebody's.
	Freed time.Time
}

// LeaseKey names what overlay ports are leased to. It is the same for as long as the service is. What is
// before the dot is the namespace's.
func LeaseKey(namespace, uid, hostname string, p Port) string {
	of := sha256.Sum256([]byte(namespace))
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", uid, hostname, p.Protocol, p.Port))
	return base64.RawURLEncoding.EncodeToString(of[:9]) + "." + base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Overlay leases overlay ports: the same to the same, and to nobody what was somebody else's a
// moment ago. It is not safe for concurrent use.
type Overlay struct {
	leases map[string]Lease
	used   map[overlayPort]struct{}
	next   map[api.Protocol]int // where to look for a free one: what was freed last is looked at last
	shares map[holder]int       // how many each has
	other  bool                 // than was kept
	undo   []func()             // what was done together so far, see Together
}

// holder is a namespace, in one protocol.
type holder struct {
	namespace string
	protocol  api.Protocol
}

func (l Lease) holder() holder {
	namespace, _, _ := strings.Cut(l.Key, ".")
	return holder{namespace, l.Ports.Protocol}
}

type overlayPort struct {
	protocol api.Protocol
	port     uint16
}

// NewOverlay continues with what was leased before.
func NewOverlay(leases []Lease) *Overlay {
	o := &Overlay{leases: map[string]Lease{}, shares: map[holder]int{}, used: map[overlayPort]struct{}{}, next: map[api.Protocol]int{api.TCP: FirstPort, api.UDP: FirstPort}}
	for _, l := range leases {
		o.hold(l)
	}
	o.Kept()
	return o
}

func (o *Overlay) hold(l Lease) {
	o.other = true
	o.leases[l.Key] = l
	o.shares[l.holder()] += l.Ports.Len()
	for p := int(l.Ports.First); p <= int(l.Ports.Last); p++ {
		o.used[overlayPort{l.Ports.Protocol, uint16(p)}] = struct{}{}
	}
}

func (o *Overlay) drop(l Lease) {
	delete(o.leases, l.Key)
	if h := l.holder(); o.shares[h] > l.Ports.Len() {
		o.shares[h] -= l.Ports.Len()
	} else {
		delete(o.shares, h)
	}
	for p := int(l.Ports.First); p <= int(l.Ports.Last); p++ {
		delete(o.used, overlayPort{l.Ports.Protocol, uint16(p)})
	}
}

// Together does what f does, or, if that reports false, leases nothing of it.
func (o *Overlay) Together(f func() bool) bool {
	o.undo = nil
	other := o.other
	if f() {
		return true
	}
	for _, u := range slices.Backward(o.undo) {
		u()
	}
	o.other = other
	return false
}

// Lease gives n ports in a row, those that the key had if it had so many. taken are ports that are
// others'. It reports false when there are no such left, or the namespace has its share.
func (o *Overlay) Lease(key string, protocol api.Protocol, n int, now time.Time, taken func(api.Ports) bool) (api.Ports, bool) {
	was, there := o.leases[key]
	if there && was.Ports.Len() == n && !taken(was.Ports) {
		if !was.Freed.IsZero() {
			l := was
			l.Freed = time.Time{}
			o.leases[key], o.other = l, true
			o.undo = append(o.undo, func() { o.leases[key] = was })
		}
		return was.Ports, true
	}
	l := Lease{Key: key, Ports: api.Ports{Protocol: protocol}}
	p, ok := o.find(l.holder(), n, taken)
	if !ok {
		o.prune(now)
		if p, ok = o.find(l.holder(), n, taken); !ok {
			return api.Ports{}, false
		}
		was, there = o.leases[key]
	}
	if there {
		moved := was
		moved.Key, moved.Freed = fmt.Sprintf("%s:%d", key, was.Ports.First), now
		o.drop(was)
		o.hold(moved)
		o.undo = append(o.undo, func() { o.drop(moved); o.hold(was) })
	}
	l.Ports = p
	o.hold(l)
	o.undo = append(o.undo, func() { o.drop(l) })
	return p, true
}

// find looks for free ports from where the last were found.
func (o *Overlay) find(h holder, n int, taken func(api.Ports) bool) (api.Ports, bool) {
	const size = LastPort - FirstPort + 1
	protocol := h.protocol
	if o.shares[h]+n > share {
		return api.Ports{}, false
	}
	start, free := o.next[protocol], 0
	for i := range size + n - 1 {
		p := FirstPort + (start-FirstPort+i)%size
		if p == FirstPort {
			free = 0 // they are in a row
		}
		if _, used := o.used[overlayPort{protocol, uint16(p)}]; used {
			free = 0
			continue
		}
		if free++; free < n {
			continue
		}
		ports := api.Ports{Protocol: protocol, First: uint16(p - n + 1), Last: uint16(p)}
		if taken(ports) {
			free = n - 1
			continue
		}
		o.next[protocol] = FirstPort + (p-FirstPort+1)%size
		return ports, true
	}
	return api.Ports{}, false
}

// Keep frees the ports of all but these keys. It reports whether there are other leases than were
// kept last.
func (o *Overlay) Keep(keys map[string]bool, now time.Time) bool {
	for key, l := range o.leases {
		if !keys[key] && l.Freed.IsZero() {
			l.Freed = now
			o.leases[key], o.other = l, true
		}
	}
	return o.other
}

// Kept notes that all leases are where a restart finds them.
func (o *Overlay) Kept() { o.other = false }

// prune forgets what has rested.
func (o *Overlay) prune(now time.Time) {
	for _, l := range o.leases {
		if !l.Freed.IsZero() && now.Sub(l.Freed) >= rest {
			o.drop(l)
		}
	}
}

// Leases are all that count, those that rest included.
func (o *Overlay) Leases(now time.Time) []Lease {
	o.prune(now)
	out := make([]Lease, 0, len(o.leases))
	for _, l := range o.leases {
		out = append(out, l)
	}
	return out
}
