package egress

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// maxTargets limits the hosts whose last outcome is stored.
const maxTargets = 16

// Proxy is an HTTP proxy and its exceptions. The zero value is no proxy.
type Proxy struct {
	// URL is http://HOST[:PORT] or https://HOST[:PORT], without a user; empty = no proxy.
	URL string
	// Username and Password are sent to the proxy as Basic credentials. Without a username no
	// credentials are sent.
	Username string
	Password Secret
	// NoProxy lists the hosts, domains, addresses, ranges and ports that are dialled directly,
	// separated by commas, as in NO_PROXY.
	NoProxy string
}

// Secret is a text that is never printed.
type Secret string

// String hides it.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}

// GoString hides it.
func (s Secret) GoString() string { return s.String() }

// Dial opens a connection, as [net.Dialer.DialContext] does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer opens connections. It is safe for concurrent use.
type Dialer struct {
	dial Dial

	mu       sync.Mutex
	proxy    Proxy
	rules    func(*url.URL) (*url.URL, error)
	outcomes map[string]Outcome // by host
}

// Outcome is the result of the last connection to a host through the proxy.
type Outcome struct {
	// Target is host:port.
	Target string
	At     time.Time
	// Err is nil if the proxy connected.
	Err *Error
}

// New returns a dialer for a proxy, or for none.
func New(p Proxy) *Dialer {
	d := &Dialer{dial: new(net.Dialer).DialContext}
	d.Use(p)
	return d
}

// Use replaces the proxy for later connections, and forgets the outcomes of the last one.
func (d *Dialer) Use(p Proxy) {
	rules := (&httpproxy.Config{HTTPSProxy: p.URL, NoProxy: p.NoProxy}).ProxyFunc()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rules != nil && d.proxy == p {
		return
	}
	d.proxy, d.rules, d.outcomes = p, rules, map[string]Outcome{}
}

// Address returns host:port of the proxy, empty without a proxy.
func (d *Dialer) Address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proxy.address()
}

// Proxied reports whether an address (host:port) is dialled through the proxy, which then
// resolves its name.
func (d *Dialer) Proxied(address string) bool {
	_, yes := d.way(address)
	return yes
}

// way returns the proxy for an address, and whether there is one.
func (d *Dialer) way(address string) (Proxy, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proxy.URL == "" {
		return Proxy{}, false
	}
	to, err := d.rules(&url.URL{Scheme: "https", Host: address})
	return d.proxy, err == nil && to != nil
}

// DialContext connects to host:port. A failure of the proxy is an [*Error].
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	p, proxied := d.way(address)
	if !proxied {
		return d.dial(ctx, network, address)
	}
	conn, failed := p.connect(ctx, d.dial, address)
	if !errors.Is(ctx.Err(), context.Canceled) {
		d.note(p, Outcome{Target: address, At: time.Now(), Err: failed})
	}
	if failed != nil {
		return nil, failed
	}
	return conn, nil
}

// note remembers what came of a connection, of the hosts that were dialled last.
func (d *Dialer) note(p Proxy, o Outcome) {
	host, _, err := net.SplitHostPort(o.Target)
	if err != nil {
		host = o.Target
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p != d.proxy {
		return
	}
	d.outcomes[strings.ToLower(host)] = o
	if len(d.outcomes) > maxTargets {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(d.outcomes)), func(a, b string) int {
			return d.outcomes[a].At.Compare(d.outcomes[b].At)
		})
		delete(d.outcomes, oldest)
	}
}

// Outcomes are what came of the last connection to each host through the proxy, the latest
// first.
func (d *Dialer) Outcomes() []Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.outcomes), func(a, b Outcome) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Target, b.Target))
	})
}
