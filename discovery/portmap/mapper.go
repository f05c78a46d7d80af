package portmap

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tunnel/wake"
)

// ErrRunning is returned by a second [Mapper.Run].
var ErrRunning = errors.New("portmap: the mapper runs already")

const (
	// routerPort is the port of PCP and NAT-PMP (RFC 6887 §19.1, RFC 6886 §3).
	routerPort = 5351
	// withdrawWait limits how long the gateway's shutdown waits for the router.
	withdrawWait = 2 * time.Second
)

// Options configure a [Mapper]. Port is required.
type Options struct {
	// Router is the router to ask; invalid = that of the default route.
	Router netip.Addr
	// Port returns the UDP port that the mapping should lead to; 0 = not open yet.
	Port func() uint16
	// Secret determines the nonces of PCP. With the same secret a killed gateway can take over
	// its own mapping. nil = a random one.
	Secret []byte
	// Changed is called when the result of [Mapper.Status] may have changed. It is called without
	// locks and must not block for long. It may be nil.
	Changed func()
	// FindRouter finds the router if none is configured; nil = [DefaultRouter].
	FindRouter func() (netip.Addr, error)
	// Dial and ListenPacket open sockets; nil = the system's.
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
	ListenPacket func(ctx context.Context, network, address string) (net.PacketConn, error)
	// Logger logs changes; nil = discard.
	Logger *slog.Logger
}

// Mapper keeps a mapping while [Mapper.Run] runs. Its methods are safe for concurrent use and,
// except Run and [Mapper.Refresh], do not block.
type Mapper struct {
	options Options
	log     *slog.Logger
	running atomic.Bool
	wake    wake.Signal

	// Owned by Run.
	conn    net.Conn // to the current router
	readers sync.WaitGroup
	igd     *igd
	upnp    chan upnpOrder // to the goroutine that carries them out

	mu     sync.Mutex // guards the following; not held during I/O and callbacks
	m      *machine
	last   Status        // at the last call of Changed
	looked chan struct{} // closed and replaced after every step
}

// New returns a mapper that does nothing yet.
func New(o Options) (*Mapper, error) {
	if o.Port == nil {
		return nil, errors.New("portmap: Port is required")
	}
	if o.Router.IsValid() && (o.Router.IsUnspecified() || o.Router.IsMulticast() || o.Router.Zone() != "") {
		return nil, fmt.Errorf("%v is no router's address", o.Router)
	}
	configured := o.Router.IsValid()
	o.setDefaults()
	p := &Mapper{
		options: o, log: o.Logger, wake: wake.New(), upnp: make(chan upnpOrder, 1),
		igd:    &igd{dial: o.Dial, listen: o.ListenPacket, multicast: !configured},
		looked: make(chan struct{}),
		m:      &machine{nonce: nonces(o.Secret), random: rand.Float64},
	}
	return p, nil
}

func (o *Options) setDefaults() {
	o.Router = o.Router.Unmap()
	if o.FindRouter == nil {
		o.FindRouter = DefaultRouter
	}
	if configured := o.Router; configured.IsValid() {
		o.FindRouter = func() (netip.Addr, error) { return configured, nil }
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.ListenPacket == nil {
		o.ListenPacket = new(net.ListenConfig).ListenPacket
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Secret == nil {
		o.Secret = randomSecret()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// nonces returns a function that derives the nonce of a client address and port. Strangers cannot
// guess it (RFC 6887 §18.2), and it is the same after a restart.
func nonces(secret []byte) func(netip.AddrPort) nonce {
	return func(client netip.AddrPort) nonce {
		h := hmac.New(sha256.New, secret)
		fmt.Fprintf(h, "postern PCP nonce v1 %v", client)
		return nonce(h.Sum(nil)[:len(nonce{})])
	}
}

// Run keeps the mapping until ctx ends, deletes it (which takes 2 s at most) and returns ctx's
// cause. It owns its goroutines and waits for them. A mapper runs once.
func (p *Mapper) Run(ctx context.Context) error {
	if p.running.Swap(true) {
		return ErrRunning
	}
	// Requests in progress when ctx ends must still be answered or undone.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	orders, cancelOrder := context.WithCancel(ctx)
	var served sync.WaitGroup
	served.Go(func() { p.serveUPnP(orders, work) })
	defer served.Wait()
	defer p.disconnect()
	defer cancel()
	defer cancelOrder()

	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(time.Until(p.step(work)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-p.wake:
		}
	}
	p.withdraw(work, timer)
	return context.Cause(ctx)
}

// withdraw deletes the mapping, or lets it expire if the router does not answer.
func (p *Mapper) withdraw(ctx context.Context, timer *time.Timer) {
	ctx, cancel := context.WithTimeout(ctx, withdrawWait)
	defer cancel()
	p.mu.Lock()
	p.m.stop(time.Now())
	p.mu.Unlock()
	for {
		timer.Reset(time.Until(p.step(ctx)))
		p.mu.Lock()
		idle := p.m.idle()
		p.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-ctx.Done():
			p.log.Info("router did not confirm that the port mapping was deleted; it will expire", "after", wantLifetime)
			return
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// step does what is due and returns the time of the next step.
func (p *Mapper) step(ctx context.Context) time.Time {
	port := p.options.Port()
	p.mu.Lock()
	if !p.m.stopping {
		p.m.setPort(time.Now(), port)
	}
	do, next := p.m.poll(time.Now())
	p.mu.Unlock()

	if do.look {
		p.look(ctx)
		next = time.Now()
	}
	if do.packet != nil && p.conn != nil {
		if _, err := p.conn.Write(do.packet); err != nil {
			p.refused(err)
		}
	}
	if do.upnp != nil {
		p.order(*do.upnp)
	}
	p.report()
	return next
}

// look finds the router and opens a socket to it. The socket's own address is sent to the router.
func (p *Mapper) look(ctx context.Context) {
	router, err := p.options.FindRouter()
	var conn net.Conn
	here := place{}
	if err == nil {
		router = router.Unmap()
		conn, err = p.options.Dial(ctx, "udp", netip.AddrPortFrom(router, routerPort).String())
	}
	if err == nil {
		local, parseErr := netip.ParseAddrPort(conn.LocalAddr().String())
		here, err = place{router, local.Addr().Unmap().WithZone("")}, parseErr
	}
	if err == nil && p.conn != nil && here == p.place() {
		_ = conn.Close() // the old one still works
	} else {
		p.disconnect()
		if err == nil {
			p.conn = conn
			p.readers.Go(func() { p.read(conn) })
		}
	}
	p.update(func(now time.Time) { p.m.setPlace(now, here, err) })
}

func (p *Mapper) place() place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m.place
}

func (p *Mapper) disconnect() {
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
	p.readers.Wait()
}

// read passes on what arrives from the router's port until the socket is closed. Errors are ICMP
// errors, one for each datagram sent.
func (p *Mapper) read(conn net.Conn) {
	buf := make([]byte, maxPCPSize+1) // to detect messages that are too long
	for {
		n, err := conn.Read(buf)
		switch {
		case isClosed(err):
			return
		case err != nil:
			p.refused(err)
		default:
			p.update(func(now time.Time) { p.m.received(now, buf[:n]) })
		}
	}
}

func (p *Mapper) refused(err error) {
	p.update(func(now time.Time) { p.m.refused(now, refusal(err)) })
}

// order passes on an order. It replaces one that was given up and not begun yet.
func (p *Mapper) order(o upnpOrder) {
	select {
	case <-p.upnp:
	default:
	}
	p.upnp <- o
}

// serveUPnP carries out orders, one at a time, until ctx ends. After that it carries out only the
// deletion of the mapping, until last ends.
func (p *Mapper) serveUPnP(ctx, last context.Context) {
	for {
		select {
		case <-last.Done():
			return
		case o := <-p.upnp:
			within := ctx
			if o.kind == taskDelete {
				within = last
			}
			within, cancel := context.WithTimeout(within, upnpTimeout)
			r := p.igd.do(within, o)
			cancel()
			p.update(func(now time.Time) { p.m.upnpDone(now, o.id, r) })
		}
	}
}

// update changes the state and wakes Run.
func (p *Mapper) update(change func(now time.Time)) {
	p.mu.Lock()
	change(time.Now())
	p.mu.Unlock()
	p.wake.Set()
}

// Observe sets what is seen of the gateway's socket from outside.
func (p *Mapper) Observe(o Observation) {
	p.update(func(now time.Time) { p.m.observe(now, o) })
}

// NetworkChanged finds the router again and asks it at once.
func (p *Mapper) NetworkChanged() { p.update(func(now time.Time) { p.m.askNow(now) }) }

// Refresh asks the router at once and waits until it has answered or was given up, or until ctx
// ends. [Mapper.Run] must be running.
func (p *Mapper) Refresh(ctx context.Context) {
	p.mu.Lock()
	before := p.m.finished
	p.m.askNow(time.Now())
	p.mu.Unlock()
	p.wake.Set()
	for {
		p.mu.Lock()
		done := p.m.finished != before && p.m.status().State != StateAsking || p.m.placeErr != ""
		looked := p.looked
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-looked:
		case <-ctx.Done():
			return
		}
	}
}

// Status returns the current state.
func (p *Mapper) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m.status()
}

// Settled reports whether the router has been asked once, with any result.
func (p *Mapper) Settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m.settled
}

// report logs events and reports changes.
func (p *Mapper) report() {
	p.mu.Lock()
	events := p.m.events
	p.m.events = nil
	s := p.m.status()
	changed := s != p.last
	p.last = s
	close(p.looked)
	p.looked = make(chan struct{})
	p.mu.Unlock()
	for _, e := range events {
		p.logEvent(e)
	}
	if changed {
		p.options.Changed()
	}
}

func (p *Mapper) logEvent(e event) {
	s := e.status
	switch e.kind {
	case eventMapped:
		p.log.Info("router mapped a port to this gateway", "protocol", string(s.Protocol), "router", s.Router.String(),
			"external", s.External.String(), "internal", s.Internal.String(), "lifetime", s.Lifetime)
	case eventLost:
		p.log.Warn("port mapping lost; requesting it again", "external", s.External.String(), "reason", e.detail)
	case eventUseless:
		p.log.Warn("port mapping is useless", "external", s.External.String(), "reason", e.detail)
	case eventFailed:
		p.log.Warn("failed to map a port", "router", s.Router.String(), "error", e.detail)
	case eventWithdrawn:
		p.log.Info("port mapping withdrawn", "external", s.External.String())
	}
}
