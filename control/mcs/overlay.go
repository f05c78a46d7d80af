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
	// FirstPort and LastPort are the overlay ports of services of clusters. They are below those
	// that the network stack uses for its own connections.
	FirstPort, LastPort = 10000, 15999
	// FirstListener and LastListener are the ports of listeners for imported services, on the
	// gateway's own address. They are below those that the kernel uses for connections.
	FirstListener, LastListener = 20000, 29999
	// Spread is how many consecutive ports a service with session affinity has. Each client uses
	// one of them, and each of them leads to one backend.
	Spread = 16
	// quarantine is how long a freed port stays unused. A peer that was away for longer is told of
	// the change before it can dial, because announcements go first.
	quarantine = time.Hour
)

// Lease is the overlay ports of one port of a service, or of one backend of a headless service.
type Lease struct {
	Key   string
	Ports api.Ports
	// Freed is when they were freed; zero while in use.
	Freed time.Time
}

// LeaseKey identifies what overlay ports are leased to. It stays the same as long as the service
// exists. The part before the dot identifies the namespace.
func LeaseKey(namespace, uid, hostname string, p Port) string {
	of := sha256.Sum256([]byte(namespace))
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", uid, hostname, p.Protocol, p.Port))
	return base64.RawURLEncoding.EncodeToString(of[:9]) + "." + base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Overlay leases overlay ports: always the same to the same key, and none that another key has
// recently had. It is not safe for concurrent use.
type Overlay struct {
	leases  map[string]Lease
	used    map[overlayPort]struct{}
	next    map[api.Protocol]int // where to look for a free one, so that recently freed ones come last
	shares  map[holder]int       // how many each has, those in quarantine included
	count   map[api.Protocol]int // of used
	freed   time.Time            // none was freed earlier than that; zero if none is free
	changed bool                 // differs from what was stored
	undo    []func()             // undoes the changes made in Atomically
}

// holder is a namespace, for one protocol.
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

// NewOverlay continues with earlier leases.
func NewOverlay(leases []Lease) *Overlay {
	o := &Overlay{leases: map[string]Lease{}, shares: map[holder]int{}, count: map[api.Protocol]int{}, used: map[overlayPort]struct{}{}, next: map[api.Protocol]int{api.TCP: FirstPort, api.UDP: FirstPort}}
	for _, l := range leases {
		o.hold(l)
	}
	o.Saved()
	return o
}

func (o *Overlay) hold(l Lease) {
	o.changed = true
	o.leases[l.Key] = l
	o.free(l)
	o.shares[l.holder()] += l.Ports.Len()
	o.count[l.Ports.Protocol] += l.Ports.Len()
	for p := int(l.Ports.First); p <= int(l.Ports.Last); p++ {
		o.used[overlayPort{l.Ports.Protocol, uint16(p)}] = struct{}{}
	}
}

func (o *Overlay) drop(l Lease) {
	delete(o.leases, l.Key)
	o.count[l.Ports.Protocol] -= l.Ports.Len()
	if h := l.holder(); o.shares[h] > l.Ports.Len() {
		o.shares[h] -= l.Ports.Len()
	} else {
		delete(o.shares, h)
	}
	for p := int(l.Ports.First); p <= int(l.Ports.Last); p++ {
		delete(o.used, overlayPort{l.Ports.Protocol, uint16(p)})
	}
}

// Atomically calls f and, if it returns false, undoes its leases.
func (o *Overlay) Atomically(f func() bool) bool {
	o.undo = nil
	other := o.changed
	if f() {
		return true
	}
	for _, u := range slices.Backward(o.undo) {
		u()
	}
	o.changed = other
	return false
}

// Lease returns n consecutive ports, those that the key had if their number is the same. taken
// reports ports that are used otherwise. It returns false if no such ports are left, or the namespace
// would have more than were left before: some are always left for one that has none.
func (o *Overlay) Lease(key string, protocol api.Protocol, n int, now time.Time, taken func(api.Ports) bool) (api.Ports, bool) {
	was, there := o.leases[key]
	if there && was.Ports.Len() == n && !taken(was.Ports) {
		if !was.Freed.IsZero() {
			l := was
			l.Freed = time.Time{}
			o.leases[key], o.changed = l, true
			o.undo = append(o.undo, func() { o.leases[key] = was })
		}
		return was.Ports, true
	}
	l := Lease{Key: key, Ports: api.Ports{Protocol: protocol}}
	p, ok := o.find(l.holder(), n, taken)
	if !ok {
		if !o.prune(now) {
			return api.Ports{}, false
		}
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

// Leased reports whether a key has ports.
func (o *Overlay) Leased(key string) bool {
	l, there := o.leases[key]
	return there && l.Freed.IsZero()
}

// find looks for free ports, starting where the last were found.
func (o *Overlay) find(h holder, n int, taken func(api.Ports) bool) (api.Ports, bool) {
	const size = LastPort - FirstPort + 1
	protocol := h.protocol
	if o.shares[h]+n > size-o.count[protocol] {
		return api.Ports{}, false
	}
	start, free := o.next[protocol], 0
	for i := range size + n - 1 {
		p := FirstPort + (start-FirstPort+i)%size
		if p == FirstPort {
			free = 0 // ports must be consecutive
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

// Retain frees the ports of all other keys. It reports whether the leases differ from the stored
// ones.
func (o *Overlay) Retain(keys map[string]bool, now time.Time) bool {
	for key, l := range o.leases {
		if !keys[key] && l.Freed.IsZero() {
			l.Freed = now
			o.leases[key], o.changed = l, true
			o.free(l)
		}
	}
	return o.changed
}

// Saved records that all leases are stored for a restart.
func (o *Overlay) Saved() { o.changed = false }

// free notes when a lease was freed, if it is not in use.
func (o *Overlay) free(l Lease) {
	if !l.Freed.IsZero() && (o.freed.IsZero() || l.Freed.Before(o.freed)) {
		o.freed = l.Freed
	}
}

// prune removes leases whose quarantine is over, and reports whether there were some. It is called for
// each export for which no ports are left.
func (o *Overlay) prune(now time.Time) (some bool) {
	if o.freed.IsZero() || now.Sub(o.freed) < quarantine {
		return false
	}
	o.freed = time.Time{}
	for _, l := range o.leases {
		if !l.Freed.IsZero() && now.Sub(l.Freed) >= quarantine {
			o.drop(l)
			some = true
			continue
		}
		o.free(l)
	}
	return some
}

// Leases returns all leases, those in quarantine included.
func (o *Overlay) Leases(now time.Time) []Lease {
	o.prune(now)
	out := make([]Lease, 0, len(o.leases))
	for _, l := range o.leases {
		out = append(out, l)
	}
	return out
}
