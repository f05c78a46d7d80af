package relay

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
)

// Client keeps an allocation on one server while [Client.Run] runs. Its methods are safe
// for concurrent use and do not block, Run apart.
type Client struct {
	o   Options
	log *slog.Logger

	check  chan struct{} // a verification is asked for
	permit chan struct{} // the wanted addresses have changed

	mu      sync.Mutex // guards what follows; not held over I/O or callbacks
	running bool
	wanted  []netip.Addr
	current *Allocation
	status  Status
}

// New makes a client that does nothing yet. What is wrong with the options, Run says.
func New(o Options) *Client {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	return &Client{
		o: o, log: log.With("relay", o.Server.Address), status: Status{Address: o.Server.Address},
		check: make(chan struct{}, 1), permit: make(chan struct{}, 1),
	}
}

// Run allocates and keeps the allocation until the context ends, then gives it back. It
// returns nil then, and an error at once when the options are wrong.
func (c *Client) Run(ctx context.Context) error {
	if err := c.o.Server.Validate(); err != nil {
		return err
	}
	c.mu.Lock()
	again := c.running
	c.running = true
	c.mu.Unlock()
	if again {
		return ErrRunning
	}
	<-ctx.Done()
	return nil
}

// Allocation is the present allocation, false while there is none.
func (c *Client) Allocation() (Allocation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return Allocation{}, false
	}
	return *c.current, true
}

// Status is how things are.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Permit sets the addresses that the allocation may exchange datagrams with, in place of
// the earlier ones. The server's own relay address always is among them.
func (c *Client) Permit(addrs []netip.Addr) {
	c.mu.Lock()
	c.wanted = append([]netip.Addr(nil), addrs...)
	c.mu.Unlock()
	wake(c.permit)
}

// Check asks for a verification of the allocation now, as when nothing comes through
// it any more. When it is lost that is known within 2 s.
func (c *Client) Check() { wake(c.check) }

// wake leaves a note in a channel of one place.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
