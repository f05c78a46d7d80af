package faketest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Options configure a [Router].
type Options struct {
	Addr     netip.Addr // the router's inside address; also of its web server
	Client   netip.Addr // the address of the host that dials it
	Seen     netip.Addr // the address at which the router sees that host; zero = Client
	External netip.Addr // the router's outside address
	// The supported protocols. With neither PCP nor NATPMP, port 5351 is closed, or silent.
	PCP, NATPMP, UPnP, Silent bool
	// IGD is the version of its UPnP device, 1 or 2; 0 = 2.
	IGD int
}

// Mapping is an entry of the router's table.
type Mapping struct {
	Client             netip.Addr
	Internal, External uint16
	By                 string // PCP, NAT-PMP or UPnP
	Nonce              [12]byte
	Expires            time.Time // zero = never
}

// Router is a router in memory. Its methods are safe for concurrent use. It must be closed.
type Router struct {
	server *http.Server
	accept listener
	served sync.WaitGroup

	mu       sync.Mutex
	o        Options
	began    time.Time
	table    map[uint16]Mapping
	requests map[string]int
	lies     Lies
	search   []string // hosts that searches were sent to
}

// Lies are ways in which a router misbehaves.
type Lies struct {
	// Result is the error with which PCP and NAT-PMP answer mapping requests; 0 = none.
	Result uint8
	// Lifetime is what they grant, in seconds; 0 = what was requested.
	Lifetime uint32
	// Answer replaces the answers of PCP and NAT-PMP.
	Answer func(request, answer []byte) [][]byte
	// Location is sent instead of the description's URL, From is the address that sends it.
	Location string
	From     netip.AddrPort
	// Description is served instead of our own.
	Description string
	// HTTP serves everything instead of our own web server.
	HTTP http.Handler
	// SOAPError are error codes with which AddPortMapping answers, each once.
	SOAPError []int
}

// New returns a running router.
func New(o Options) *Router {
	if !o.Seen.IsValid() {
		o.Seen = o.Client
	}
	if o.IGD == 0 {
		o.IGD = 2
	}
	r := &Router{
		o: o, began: time.Now(), table: make(map[uint16]Mapping), requests: make(map[string]int),
		accept: listener{conns: make(chan net.Conn), closed: make(chan struct{}), addr: netip.AddrPortFrom(o.Addr, webPort)},
	}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: time.Minute}
	r.served.Go(func() { _ = r.server.Serve(&r.accept) })
	return r
}

// Close stops the router.
func (r *Router) Close() {
	_ = r.server.Close()
	r.served.Wait()
}

// Lie makes the router misbehave.
func (r *Router) Lie(l Lies) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lies = l
}

// Change changes the router's options.
func (r *Router) Change(change func(*Options)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.o)
}

// Restart loses every mapping and begins a new epoch.
func (r *Router) Restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.table)
	r.began = time.Now()
}

// Forget silently loses every mapping.
func (r *Router) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.table)
}

// Mappings returns the current ones, by external port.
func (r *Router) Mappings() []Mapping {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	var out []Mapping
	for _, m := range r.table {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Mapping) int { return int(a.External) - int(b.External) })
	return out
}

// Requests returns how many requests of a kind came: "PCP MAP", "PCP ANNOUNCE", "NAT-PMP
// address", "NAT-PMP map", "SSDP", "HTTP", or a SOAP action.
func (r *Router) Requests(kind string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests[kind]
}

// Asked returns the number of all requests.
func (r *Router) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.requests {
		n += c
	}
	return n
}

// Searched returns where searches were sent to.
func (r *Router) Searched() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.search)
}

func (r *Router) count(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[kind]++
}

// expire drops expired mappings. mu is held.
func (r *Router) expire() {
	for port, m := range r.table {
		if !m.Expires.IsZero() && !time.Now().Before(m.Expires) {
			delete(r.table, port)
		}
	}
}

// assign assigns an external port to a client: the one it has for that internal port, else the
// wanted one if it is free. mu is held.
func (r *Router) assign(client netip.Addr, internal, wanted uint16) uint16 {
	r.expire()
	for port, m := range r.table {
		if m.Client == client && m.Internal == internal {
			return port
		}
	}
	for {
		if wanted == 0 {
			wanted = 1024
		}
		if _, taken := r.table[wanted]; !taken {
			return wanted
		}
		wanted++
	}
}

// errElsewhere is returned for dialling anything but the router: the test has no network.
var errElsewhere = errors.New("faketest: dialled somebody else than the router")

// Dial is for portmap.Options.
func (r *Router) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	o := r.o
	r.mu.Unlock()
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("faketest: dial: %w", err)
	}
	if to.Addr() != o.Addr {
		r.count("elsewhere")
		return nil, fmt.Errorf("%w: %s", errElsewhere, address)
	}
	switch {
	case network == "udp":
		return newPacketConn(r, netip.AddrPortFrom(o.Client, 40000), to), nil
	case !o.UPnP:
		return nil, syscall.ECONNREFUSED
	}
	here, there := net.Pipe()
	select {
	case r.accept.conns <- there:
		return here, nil
	case <-r.accept.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ListenPacket is for portmap.Options.
func (r *Router) ListenPacket(_ context.Context, _, address string) (net.PacketConn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("faketest: listen: %w", err)
	}
	return newPacketConn(r, at, netip.AddrPort{}), nil
}

// listener returns connections that were made in memory.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   netip.AddrPort
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }
