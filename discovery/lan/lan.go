package lan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

// ErrRunning is returned by a second [Finder.Run].
var ErrRunning = errors.New("lan: the finder runs already")

const (
	// DefaultTTL is how long an announcement is valid without being repeated: what RFC 6762 §10
	// recommends for records that contain a host's addresses. It applies to all records here, so
	// that a killed gateway is forgotten as a whole.
	DefaultTTL = 120 * time.Second
	// MinTTL and MaxTTL limit it. MaxTTL is RFC 6762's for records without addresses.
	MinTTL = 5 * time.Second
	MaxTTL = 75 * time.Minute
)

const (
	// lookEvery is how often the interfaces are read, and failed sockets are opened again.
	lookEvery = 3 * time.Second
	// maxPacket is the largest message in bytes (RFC 6762 §17).
	maxPacket = 9000
)

// Options configure a [Finder]. Name, PublicKey and Port are required.
type Options struct {
	// Name is the cluster's name, a DNS label.
	Name      string
	PublicKey peer.PublicKey
	// Port returns the gateway's UDP port; while it is 0 nothing is announced.
	Port func() uint16
	// Capabilities are announced.
	Capabilities []string
	// Secret is the LAN group's; zero = none.
	Secret peer.PresharedKey
	// TTL is how long our announcements are valid; 0 = [DefaultTTL].
	TTL time.Duration
	// Interfaces lists the interfaces to use; nil = all suitable ones of the system.
	Interfaces func() ([]Interface, error)
	// Listen opens a socket for one family on an interface; nil = the system's.
	Listen func(i Interface, f Family) (Conn, error)
	// Changed is called when the result of [Finder.Found] has changed. It is called without
	// locks, by one goroutine at a time, and must not block for long. It may be nil.
	Changed func()
	// Logger logs changes; nil = discard.
	Logger *slog.Logger
}

func (o *Options) setDefaults() {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.Interfaces == nil {
		o.Interfaces = func() ([]Interface, error) { return SystemInterfaces(nil, nil) }
	}
	if o.Listen == nil {
		o.Listen = listen
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Instance is a gateway found on one interface. All but the times and the interface is
// unverified.
type Instance struct {
	// Name is the instance's: a cluster's name, perhaps with a number ("edge (2)"). It may be any
	// text of up to 63 bytes.
	Name      foreign.Text
	PublicKey peer.PublicKey
	Overlay   netip.Addr
	// Addresses are those within the interface's networks, with the port, sorted.
	Addresses    []netip.AddrPort
	Capabilities []string
	// Member is whether it proves to belong to the same LAN group.
	Member    bool
	Interface string
	FirstSeen time.Time
	LastSeen  time.Time
	// Expires is when it is forgotten unless it is heard again.
	Expires time.Time
	// Err says what is wrong with its records; other fields may then be empty.
	Err foreign.Text
}

// LinkStatus is the state of an interface.
type LinkStatus struct {
	Interface string
	// Unfit says why the interface is not used; empty if it is.
	Unfit string
	// IPv4 and IPv6 are whether messages are exchanged over each family. Err says why not, if
	// they should be.
	IPv4, IPv6 bool
	Err        string
	// Heard is when another multicast DNS sender was last heard there; zero = never.
	Heard time.Time
}

// Status is the state of a [Finder].
type Status struct {
	// Since is when it was started; zero = it does not run.
	Since time.Time
	// Name is the announced name, which differs from the configured one if that was taken.
	Name string
	// Announced is whether it is announced on any interface.
	Announced bool
	Links     []LinkStatus
	// Err says why the interfaces cannot be listed.
	Err    string
	Counts Counts
}

// Counts count packets since the start.
type Counts struct {
	Received  uint64 // accepted
	Malformed uint64 // not understood
	OffLink   uint64 // from senders that are not on the link
	Excess    uint64 // above the rate limit of a link
	Sent      uint64
	Unsent    uint64 // rejected by the socket
}

// Finder announces this gateway and finds others while [Finder.Run] runs. Its methods are safe
// for concurrent use and, except Run, do not block.
type Finder struct {
	o       Options
	log     *slog.Logger
	running atomic.Bool
	wake    wake.Signal

	// Owned by Run.
	conns   map[connKey]*openConn
	readers sync.WaitGroup
	failed  map[connKey]string // why a wanted socket is not open, as already logged

	mu         sync.Mutex // guards the following; not held during I/O and callbacks
	m          *machine
	since      time.Time
	interfaces []Interface
	listErr    string
	errs       map[int][]string // by interface
	counts     Counts
}

type connKey struct {
	index  int
	family Family
}

type openConn struct {
	Conn
	done chan struct{} // closed when its reader has ended
}

// New returns a finder that does nothing yet.
func New(o Options) (*Finder, error) {
	if o.Port == nil || o.PublicKey.IsZero() {
		return nil, errors.New("lan: Port and PublicKey are required")
	}
	if len(o.Name) == 0 || len(o.Name) > maxLabel {
		return nil, fmt.Errorf("lan: %q is no name for an instance", o.Name)
	}
	o.setDefaults()
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return nil, fmt.Errorf("lan: a TTL of %v is outside %v to %v", o.TTL, MinTTL, MaxTTL)
	}
	return &Finder{
		o: o, log: o.Logger, wake: wake.New(),
		conns: map[connKey]*openConn{}, failed: map[connKey]string{},
		m: newMachine(identity{
			name: o.Name, key: o.PublicKey, capabilities: o.Capabilities, secret: o.Secret, ttl: o.TTL,
		}, rand.Float64),
	}, nil
}

// Run announces and finds until ctx ends, sends goodbyes and returns ctx's cause. It owns its
// goroutines and waits for them. A finder runs once.
func (f *Finder) Run(ctx context.Context) error {
	if f.running.Swap(true) {
		return ErrRunning
	}
	f.mu.Lock()
	f.since = time.Now()
	f.mu.Unlock()
	defer f.readers.Wait()
	defer f.closeAll()

	timer := time.NewTimer(0)
	defer timer.Stop()
	var looked time.Time
	for ctx.Err() == nil {
		if now := time.Now(); now.Sub(looked) >= lookEvery {
			looked = now
			f.look()
		}
		next := f.step()
		if again := looked.Add(lookEvery); next.IsZero() || again.Before(next) {
			next = again
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-f.wake:
		}
	}
	f.mu.Lock()
	f.m.stop(time.Now())
	out := f.m.take()
	f.mu.Unlock()
	f.send(out)
	return context.Cause(ctx)
}

// step does what is due, sends the results and returns the time of the next step.
func (f *Finder) step() time.Time {
	port := f.o.Port()
	f.mu.Lock()
	now := time.Now()
	f.m.setPort(now, port)
	next := f.m.poll(now)
	out, renamed := f.m.take(), f.m.takeRenamed()
	changed, again := f.m.takeChanged(now)
	f.mu.Unlock()
	f.send(out)
	if renamed != "" {
		f.log.Warn("name is taken on the local network; announcing under another",
			"name", f.o.Name, "announcedAs", renamed)
	}
	if changed {
		f.o.Changed()
	}
	return earlier(next, again)
}

// send sends the machine's datagrams.
func (f *Finder) send(out []datagram) {
	for _, d := range out {
		c := f.conns[connKey{d.link, d.family}]
		if c == nil {
			continue
		}
		var err error
		if d.to.IsValid() {
			err = c.WriteTo(d.data, d.to)
		} else {
			err = c.Multicast(d.data)
		}
		f.mu.Lock()
		f.counts.Sent++
		if err != nil {
			f.counts.Sent--
			f.counts.Unsent++
		}
		f.mu.Unlock()
		if err != nil {
			f.log.Debug("failed to send an mDNS message", "interface", d.name, "error", err)
		}
	}
}

// read passes on what arrives at a socket until the socket is closed.
func (f *Finder) read(key connKey, c *openConn) {
	defer close(c.done)
	b := make([]byte, maxPacket)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		f.mu.Lock()
		what := f.m.handle(time.Now(), key.index, key.family, b[:n], from)
		switch what {
		case taken, echoed:
			f.counts.Received++
		case malformed:
			f.counts.Malformed++
		case offLink:
			f.counts.OffLink++
		case excess:
			f.counts.Excess++
		}
		f.mu.Unlock()
		if what == taken {
			f.wake.Set()
		}
	}
}

// PortChanged reports that the result of Options.Port may have changed.
func (f *Finder) PortChanged() { f.wake.Set() }

// Found returns the gateways known now, sorted by name, without this one.
func (f *Finder) Found() []Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.m.found(time.Now())
}

// Status returns the finder's state.
func (f *Finder) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Since: f.since, Name: f.m.label, Announced: f.m.announced(), Err: f.listErr, Counts: f.counts}
	for _, i := range f.interfaces {
		l := LinkStatus{Interface: i.Name, Unfit: i.Unfit, Err: strings.Join(f.errs[i.Index], "; ")}
		if k := f.m.links[i.Index]; k != nil {
			l.IPv4, l.IPv6, l.Heard = k.open[IPv4], k.open[IPv6], k.heard
		}
		s.Links = append(s.Links, l)
	}
	slices.SortFunc(s.Links, func(a, b LinkStatus) int { return strings.Compare(a.Interface, b.Interface) })
	return s
}
