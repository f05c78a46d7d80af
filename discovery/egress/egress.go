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

// maxTargets bounds the hosts whose last outcome is remembered.
const maxTargets = 16

// Proxy is an HTTP proxy and what it is not for. The zero value is none.
type Proxy struct {
	// URL is http://HOST[:PORT] or https://HOST[:PORT], without a user; empty = none.
	URL string
	// Username and Password are sent to the proxy, as Basic credentials; without a name
	// nothing is.
	Username string
	Password Secret
	// NoProxy are the hosts, domains, addresses, ranges and ports that are dialled straight,
	// as NO_PROXY lists them, separated by commas.
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

// Outcome is how the last connection to a host through the proxy came about.
type Outcome struct {
	// Target is host:port.
	Target string
	At     time.Time
	// Err is nil when the proxy connected.
	Err *Error
}

// New makes a dialer for a proxy, or for none.
func New(p Proxy) *Dialer {
	d := &Dialer{dial: new(net.Dialer).DialContext}
	d.Use(p)
	return d
}

// Use takes another proxy for what is dialled from now on. What came of the one before is
// forgotten.
func (d *Dialer) Use(p Proxy) {
	rules := (&httpproxy.Config{HTTPSProxy: p.URL, NoProxy: p.NoProxy}).ProxyFunc()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rules != nil && d.proxy == p {
		return
	}
	d.proxy, d.rules, d.outcomes = p, rules, map[string]Outcome{}
}

// Address is host:port of the proxy, empty without one.
func (d *Dialer) Address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proxy.address()
}

// Proxied reports whether an address (host:port) is dialled through the proxy, which resolves
// its name then.
func (d *Dialer) Proxied(address string) bool {
	_, yes := d.way(address)
	return yes
}

// way is the proxy that an address takes, if it takes one.
func (d *Dialer) way(address string) (Proxy, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proxy.URL == "" {
		return Proxy{}, false
	}
	to, err := d.rules(&url.URL{Scheme: "https", Host: address})
	return d.proxy, err == nil && to != nil
}

// DialContext connects to host:port. What a proxy is to blame for is an [*Error].
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
