package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	firstBackoff = time.Second
	maxBackoff   = 30 * time.Second
	// steadyAfter is how long an allocation must have worked for its loss to count as the first,
	// which is followed by no pause.
	steadyAfter = 30 * time.Second
	// UDP is tried again a minute after it failed, then every five.
	firstUpgrade = time.Minute
	nextUpgrade  = 5 * time.Minute
	// overlap is how long the old allocation stays when a better one replaces it: peers learn the
	// new address in-band, over the old one.
	overlap = 30 * time.Second
)

// Client keeps an allocation on one server while [Client.Run] runs. Its methods are safe for
// concurrent use and do not block, except Run.
type Client struct {
	o       Options
	log     *slog.Logger
	traffic counters

	retry    wake.Signal    // an allocation is wanted before the pause ends
	retiring sync.WaitGroup // replaced allocations

	mu       sync.Mutex // guards the following; locked before an allocation's; not held during I/O or callbacks
	running  bool
	wanted   []netip.Addr
	active   map[*allocation]struct{} // running ones, including retiring ones
	current  *allocation
	status   Status
	previous *Grant // it may still exist at the server
	reported Grant  // the last OnGrant
	denials  denials
	refused  string // the last refusal that was logged, on any transport
}

// New returns a client that does nothing yet. Run reports invalid options.
func New(o Options) *Client {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Proxied == nil {
		o.Proxied = func(string) bool { return false }
	}
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.OnGrant == nil {
		o.OnGrant = func(Grant) {}
	}
	return &Client{
		o: o, log: log.With("relay", o.Server.Address), status: Status{Address: o.Server.Address},
		retry: wake.New(), active: make(map[*allocation]struct{}), previous: o.Previous,
	}
}

// validate returns what is wrong with the options.
func (o Options) validate() error {
	if o.ID == nil || o.Attach == nil {
		return errors.New("relay: ID and Attach are required")
	}
	if err := o.Server.Validate(); err != nil {
		return err
	}
	if o.Socket == nil && o.Server.attempts()[0].transport == TransportUDP {
		return fmt.Errorf("relay %s: transport udp needs the gateway's socket", o.Server.Address)
	}
	return nil
}

// Run allocates and keeps the allocation until the context ends, then deallocates, unless the cause
// is [ErrKeep]. It returns nil then, or an error at once if the options are invalid.
func (c *Client) Run(ctx context.Context) error {
	if err := c.o.validate(); err != nil {
		return err
	}
	c.mu.Lock()
	again := c.running
	c.running = true
	c.mu.Unlock()
	if again {
		return ErrRunning
	}
	defer c.retiring.Wait()
	for round := 0; ctx.Err() == nil; {
		a, f := c.establish(ctx, round)
		if f != nil {
			c.failed(ctx, f, round)
			round++
			continue
		}
		began := time.Now()
		c.hold(ctx, a)
		switch {
		case time.Since(began) >= steadyAfter:
			round = 0
		case round > 0:
			c.pause(ctx, round-1)
			round++
		default:
			round++
		}
	}
	return nil
}

// failed records why there is no allocation, and waits before the next round.
func (c *Client) failed(ctx context.Context, f *failure, round int) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	news := c.status.Err != f.words && (f.refusal == "" || f.refusal != c.refused)
	if f.refusal != "" {
		c.refused = f.refusal
	}
	c.status.Err, c.status.Fault = f.words, f.fault()
	if c.status.Since.IsZero() {
		c.status.Since = time.Now()
	}
	c.mu.Unlock()
	if news {
		c.log.Warn("failed to allocate on the relay", "reason", f.words)
	}
	c.pause(ctx, round)
}

// pause waits between rounds: 1, 2, 4 … 30 s ± 20 %, since all clients of a restarted server come
// back together. Check ends it, after a second.
func (c *Client) pause(ctx context.Context, round int) {
	d := min(firstBackoff<<min(round, 5), maxBackoff)
	d = d*4/5 + rand.N(d*2/5)
	c.mu.Lock()
	c.status.NextTry = time.Now().Add(d)
	c.mu.Unlock()
	soonest := time.NewTimer(min(d, firstBackoff))
	defer soonest.Stop()
	select {
	case <-soonest.C:
	case <-ctx.Done():
		return
	}
	timer := time.NewTimer(d - min(d, firstBackoff))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.retry:
	case <-ctx.Done():
	}
}

// hold keeps an allocation, or better ones that replace it, until it is lost.
func (c *Client) hold(ctx context.Context, a *allocation) {
	c.take(a)
	upgrade := time.NewTimer(firstUpgrade)
	defer upgrade.Stop()
	for {
		var upgradeC <-chan time.Time
		if a.Transport != TransportUDP && c.o.Server.attempts()[0].transport == TransportUDP {
			upgradeC = upgrade.C
		}
		select {
		case <-a.lost.Done():
			c.drop(a, context.Cause(a.lost), false)
			return
		case err := <-a.broken:
			c.drop(a, &failure{words: fmt.Sprintf("the connection to %v broke (%v): the server was restarted, or something between cut it; allocating again", a.link.server, err)}, false)
			return
		case <-upgradeC:
			if better := c.upgrade(ctx, a); better != nil {
				c.take(better)
				c.retire(ctx, a)
				a = better
			}
			upgrade.Reset(nextUpgrade)
		case <-ctx.Done():
			c.drop(a, nil, !errors.Is(context.Cause(ctx), ErrKeep))
			return
		}
	}
}

// upgrade tries UDP while the current allocation stays; nil = it still fails.
func (c *Client) upgrade(ctx context.Context, a *allocation) *allocation {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.lost, cancel)()
	at := c.o.Server.attempts()[0]
	better, f := c.attempt(ctx, at, func() (netip.Addr, *failure) {
		if known := a.link.server.addr.Addr(); !known.IsUnspecified() {
			return known, nil
		}
		return c.resolve(ctx, 0)
	}, firstAnswer)
	if f != nil {
		c.mu.Lock()
		c.status.Fallback = at.transport + ": " + f.words
		c.mu.Unlock()
		return nil
	}
	return better
}

// retire closes a replaced allocation after a while.
func (c *Client) retire(ctx context.Context, a *allocation) {
	c.retiring.Go(func() {
		timer := time.NewTimer(overlap)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-a.lost.Done():
		case <-ctx.Done():
		}
		a.close(true)
		c.forget(a)
	})
}

// take makes an allocation the current one.
func (c *Client) take(a *allocation) {
	c.mu.Lock()
	c.current = a
	c.active[a] = struct{}{}
	a.want(c.wanted)
	c.refused = ""
	c.status = Status{
		Address: c.status.Address, Transport: a.Transport, Relayed: a.Relayed, Mapped: a.Mapped,
		Since: time.Now(), Fallback: a.fallback,
	}
	c.mu.Unlock()
	a.start()
	c.log.Info("allocated on the relay", "relayed", a.Relayed, "mapped", a.Mapped, "transport", a.Transport, "id", a.ID,
		"adopted", a.channels.adopted)
	if a.Relayed.Addr().IsPrivate() && !a.link.server.addr.Addr().IsPrivate() {
		c.log.Warn("relay allocated a private address, which peers elsewhere cannot reach; set external-ip (coturn)",
			"relayed", a.Relayed, "server", a.link.server.name)
	}
	c.o.OnChange()
	c.granted(a, time.Now().Add(a.lifetime))
}

// drop closes the current allocation: lost or, without a loss, deallocated or left.
func (c *Client) drop(a *allocation, loss error, giveBack bool) {
	c.mu.Lock()
	c.current = nil
	c.status = Status{Address: c.status.Address, Since: time.Now()}
	if loss != nil {
		c.status.Err, c.status.Fault = loss.Error(), FaultServer
	}
	if f := (*failure)(nil); errors.As(loss, &f) {
		c.status.Fault = f.fault()
		if !f.silent {
			c.previous = nil // the server has said that it is gone
		}
	}
	c.mu.Unlock()
	if loss != nil {
		c.log.Warn("relay allocation lost", "relayed", a.Relayed, "id", a.ID, "reason", loss)
	}
	c.o.OnChange() // nobody should send on it any more
	a.close(giveBack)
	c.forget(a)
}

func (c *Client) forget(a *allocation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.active, a)
}

// observe records what maintaining the current allocation found out.
func (c *Client) observe(a *allocation, o observed) {
	c.mu.Lock()
	if c.current != a {
		c.mu.Unlock()
		return
	}
	if o.rtt > 0 {
		c.status.RTT = o.rtt
	}
	switch {
	case o.silence != nil:
		c.status.Err, c.status.Fault, c.status.AskedAt = o.silence.words, o.silence.fault(), time.Time{}
	case o.refreshed > 0:
		c.status.Err, c.status.Fault, c.status.AskedAt = "", "", time.Time{}
	}
	var news []netip.Addr
	held := 0
	if o.asked {
		for addr, why := range o.denied {
			if c.status.Denied[addr] != why {
				news = append(news, addr)
			}
		}
		c.status.Denied = o.denied
		slices.SortFunc(news, netip.Addr.Compare)
		news, held = c.denials.pass(time.Now(), news, o.denied)
	}
	c.mu.Unlock()
	if o.refreshed > 0 {
		c.granted(a, time.Now().Add(o.refreshed))
	}
	if held > 0 {
		c.log.Warn("relay refuses many addresses; the status lists them", "count", held)
	}
	for _, addr := range news {
		level := slog.LevelWarn
		if o.denied[addr] == otherFamily {
			level = slog.LevelDebug
		}
		c.log.Log(context.Background(), level, "relay refuses an address", "address", addr, "reason", o.denied[addr])
	}
}

// Allocation returns the current allocation, false if there is none.
func (c *Client) Allocation() (Allocation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return Allocation{}, false
	}
	return c.current.Allocation, true
}

// Status returns the client's state.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	s.Traffic = c.traffic.snapshot()
	return s
}

// Permit sets the addresses that the allocation may exchange datagrams with, replacing the earlier
// ones. The server's own relay address is always among them.
func (c *Client) Permit(addrs []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = slices.Clone(addrs)
	for a := range c.active {
		a.want(c.wanted)
	}
}

// Check requests a verification of the allocation now, because nothing seems to come through. If it
// is lost that is known within 2 s. Without an allocation the next attempt is made now.
func (c *Client) Check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.check.Set()
		return
	}
	c.retry.Set()
}

// Ask verifies the allocation, too, but does not give it up any sooner. Status shows within 3 s
// whether the server answers. Without an allocation the next attempt is made now.
func (c *Client) Ask() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		c.retry.Set()
		return
	}
	if c.status.AskedAt.IsZero() {
		c.status.AskedAt = time.Now()
	}
	c.current.ask.Set()
}
