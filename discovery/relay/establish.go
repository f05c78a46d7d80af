package relay

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// firstAnswer is how long a transport may be silent before the next is tried: UDP and TCP in
	// vain, and then TLS, fit into the 5 s in which there should be an allocation. Later rounds
	// allow twice and four times as much, for slow servers.
	firstAnswer = 1500 * time.Millisecond
	// wholeAttempt bounds an attempt with a server that answers, or with the only one: the
	// library's last retransmission of a request is at 7.8 s.
	wholeAttempt   = 8 * time.Second
	resolveTimeout = 3 * time.Second
	// How often an attempt requests an allocation, and how long after ending an older one from the
	// same address and port. coturn 4.6 ends it after a second.
	maxAsks  = 5
	endPause = 400 * time.Millisecond
	// minLifetime is the shortest useful lifetime. The library refreshes after half of it, without
	// a pause if that is 0.
	minLifetime = 10 * time.Second
)

// attempt is a transport and its port.
type attempt struct {
	transport string
	port      uint16
}

// place is where a server is: what to dial, and the address by which the library knows it, which is
// unspecified if a proxy resolves the name.
type place struct {
	name string // host:port
	addr netip.AddrPort
}

// String returns its name.
func (p place) String() string { return p.name }

// attempts returns the transports to try, in order.
func (s Server) attempts() []attempt {
	_, port, _ := s.hostPort()
	plain, secure := port, port
	if port == 0 {
		plain, secure = defaultPort, defaultTLSPort
	}
	switch s.Transport {
	case TransportUDP, TransportTCP:
		return []attempt{{s.Transport, plain}}
	case TransportTLS:
		return []attempt{{TransportTLS, secure}}
	}
	if port == defaultPort { // it is only that of UDP and TCP
		secure = defaultTLSPort
	}
	return []attempt{{TransportUDP, plain}, {TransportTCP, plain}, {TransportTLS, secure}}
}

// establish allocates over the first transport that works.
func (c *Client) establish(ctx context.Context, round int) (*allocation, *failure) {
	attempts := c.o.Server.attempts()
	resolve := sync.OnceValues(func() (netip.Addr, *failure) { return c.resolve(ctx, round) })
	silence := firstAnswer << min(round, 2)
	if len(attempts) == 1 {
		silence = wholeAttempt
	}
	var failures []string
	certificate := false
	for _, at := range attempts {
		a, f := c.attempt(ctx, at, resolve, silence)
		if f == nil {
			a.fallback = strings.Join(failures, "; ")
			return a, nil
		}
		failures = append(failures, at.transport+": "+f.words)
		certificate = certificate || f.certificate
		// A server that refuses over one transport does so over all, except for a 437, which is
		// about our address and port.
		if !f.silent && f.code != codeMismatch || ctx.Err() != nil {
			f.refusal, f.words = f.words, failures[len(failures)-1]
			return nil, f
		}
	}
	return nil, &failure{words: strings.Join(failures, "; "), silent: true, certificate: certificate}
}

// attempt allocates over one transport. The server's name is resolved unless a proxy does that.
func (c *Client) attempt(ctx context.Context, at attempt, resolve func() (netip.Addr, *failure), silence time.Duration) (*allocation, *failure) {
	host, _, err := c.o.Server.hostPort()
	if err != nil {
		return nil, &failure{words: err.Error()}
	}
	name := net.JoinHostPort(host, strconv.Itoa(int(at.port)))
	if at.transport != TransportUDP && c.o.Proxied(name) {
		return c.allocate(ctx, at.transport, place{name: name, addr: netip.AddrPortFrom(netip.IPv4Unspecified(), at.port)}, silence)
	}
	addr, f := resolve()
	if f != nil {
		return nil, f
	}
	to := netip.AddrPortFrom(addr, at.port)
	return c.allocate(ctx, at.transport, place{name: to.String(), addr: to}, silence)
}

// resolve returns the server's address: another one of several in each round.
func (c *Client) resolve(ctx context.Context, round int) (netip.Addr, *failure) {
	host, _, err := c.o.Server.hostPort()
	if err != nil {
		return netip.Addr{}, &failure{words: err.Error()}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := c.o.Resolve(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("it has no address")
	}
	if err != nil {
		return netip.Addr{}, &failure{words: fmt.Sprintf("resolve %s: %s: check the relay's name and this machine's DNS", host, cause(err)), silent: true}
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() }) // IPv4 first
	return addrs[round%len(addrs)], nil
}

// allocate allocates over one transport.
func (c *Client) allocate(ctx context.Context, transport string, to place, silence time.Duration) (*allocation, *failure) {
	l := newLink(transport, to, c.o.Server, &c.traffic.malformed)
	lib, err := newLibrary(l, c.o.Server, c.log)
	if err != nil {
		return nil, &failure{words: err.Error()}
	}
	l.lib = lib
	var broken <-chan error
	var detach func()
	if transport == TransportUDP {
		l.write = func(b []byte) error { return c.o.Socket.WriteTo(b, to.addr) }
		if s, ok := c.o.Socket.(RunWriter); ok {
			l.writeRun = func(bs [][]byte) error { return s.WriteRun(bs, to.addr) }
		}
		detach = c.o.Socket.AddServer(to.addr, l.handle)
	} else {
		conn, f := c.connect(ctx, transport, to, silence)
		if f != nil {
			return nil, f
		}
		s := newStream(conn, l.handle)
		l.write, broken, detach = s.write, s.broken, s.close
	}
	if c.adopt(ctx, l) == isOurs {
		return c.newAllocation(ctx, l, nil, true, detach), nil
	}
	relayed, adopted, f := c.request(ctx, l, silence, broken)
	if f != nil {
		detach()
		return nil, f
	}
	a := c.newAllocation(ctx, l, relayed, adopted, detach)
	a.broken = broken
	return a, nil
}

// newAllocation sets up a new allocation, or an adopted one; start starts it. One that the library did
// not make has no conn.
func (c *Client) newAllocation(ctx context.Context, l *link, conn net.PacketConn, adopted bool, detach func()) *allocation {
	got, _, _ := l.learnt()
	a := &allocation{
		Allocation: Allocation{
			ID: c.o.ID(), Relayed: got.relayed, Mapped: got.mapped,
			Server: c.o.Server.Address, Transport: l.transport,
		},
		link: l, conn: conn, server: c.o.Server, lifetime: got.lifetime,
		traffic: &c.traffic, report: c.observe,
		queue: make(chan outgoing, sendQueue), channels: newChannels(adopted, got.relayed.Addr()),
		check: wake.New(), ask: wake.New(), permit: wake.New(),
	}
	// The allocation's goroutines end with close, after Run's deallocation.
	a.ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	a.lost, a.lose = context.WithCancelCause(a.ctx)
	a.states.Store(&map[netip.Addr]permissionState{a.Relayed.Addr(): asked})
	deliver, remove := c.o.Attach(a.ID, a.send)
	a.deliver, a.detach = deliver, []func(){remove, detach}
	l.data.Store(&inbound{a.onChannel, a.onIndication})
	return a
}

// connect opens a connection for TCP or TLS.
func (c *Client) connect(ctx context.Context, transport string, to place, timeout time.Duration) (net.Conn, *failure) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := c.o.Dial(ctx, "tcp", to.name)
	if err != nil {
		return nil, &failure{words: explainDial(transport, to, err), silent: true}
	}
	if transport == TransportTCP {
		return conn, nil
	}
	config, err := c.o.Server.tlsConfig()
	if err != nil {
		conn.Close()
		return nil, &failure{words: err.Error()}
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &failure{words: fmt.Sprintf("%v: %s", to, explainTLS(err, config.ServerName)), silent: true, certificate: aboutCertificate(err)}
	}
	return secured, nil
}

// request makes the library allocate. It waits for the server's first answer as long as silence
// says, and wholeAttempt for the rest. If the server turns out to have the earlier allocation, that is
// adopted.
func (c *Client) request(ctx context.Context, l *link, silence time.Duration, broken <-chan error) (conn net.PacketConn, adopted bool, f *failure) {
	ctx, cancel := context.WithTimeout(ctx, wholeAttempt)
	defer cancel()
	for ended := false; ; {
		if conn, f = l.ask(ctx, c.o.Server, silence, broken); f == nil {
			return conn, false, nil
		}
		if f.code == codeStaleNonce && l.again(ctx, 0) {
			continue
		}
		if f.code == codeMismatch {
			// The allocation is usually our own, from before a restart of this gateway: its socket
			// has the same port again. Perhaps only the server's first answer was lost.
			outcome := c.adopt(ctx, l)
			if outcome == isOurs {
				return nil, true, nil
			}
			// Only its user can end it, and coturn takes a second to. One that we may still adopt
			// stays.
			if (outcome == unheard || ended || l.end(ctx)) && l.again(ctx, endPause) {
				ended = ended || outcome == refused
				continue
			}
		}
		break
	}
	if l.isOpen() {
		ended, cancel := context.WithTimeout(ctx, goodbye)
		l.end(ended) // it granted one, which would stay for 10 minutes
		cancel()
	}
	l.shut()
	l.lib.Close()
	return nil, false, f
}

// again reports whether the allocation may be requested once more, after a pause.
func (l *link) again(ctx context.Context, after time.Duration) bool {
	if l.asked++; l.asked >= maxAsks {
		return false
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// end ends any allocation from this address and port.
func (l *link) end(ctx context.Context) bool {
	m, _, err := l.exchange(ctx, methodRefresh, func(b []byte, _ txID) []byte { return addLifetime(b, 0) })
	return err == nil && m.class == classSuccess
}

// requestAddress requests a relayed address: an IPv4 one or, where the server has none, an IPv6 one
// (RFC 8656 §7.1), which the library cannot request. Such an allocation has no conn.
func (l *link) requestAddress(ctx context.Context) (net.PacketConn, error) {
	conn, err := l.lib.Allocate()
	if _, refusal, _ := l.learnt(); err == nil || refusal.code != codeFamily {
		return conn, err
	}
	l.mu.Lock()
	l.refusal = message{}
	l.mu.Unlock()
	m, _, err := l.exchange(ctx, methodAllocate, func(b []byte, _ txID) []byte {
		return addAttr(addAttr(b, attrTransport, []byte{protocolUDP, 0, 0, 0}), attrRequestedFamily, []byte{familyIPv6, 0, 0, 0})
	})
	if err == nil && m.class != classSuccess {
		err = errRefused
	}
	return nil, err
}

// ask is one request for an address. The library's takes no context.
func (l *link) ask(ctx context.Context, s Server, silence time.Duration, broken <-chan error) (net.PacketConn, *failure) {
	type result struct {
		conn net.PacketConn
		err  error
	}
	l.mu.Lock()
	l.refusal, l.sendErr = message{}, nil
	l.mu.Unlock()
	done := make(chan result, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		conn, err := l.requestAddress(ctx)
		done <- result{conn, err}
	}()
	timer := time.NewTimer(silence)
	defer timer.Stop()
	heard := l.heard
	for {
		select {
		case r := <-done:
			return l.result(r.conn, r.err, s)
		case <-heard:
			heard = nil
			timer.Stop()
			continue
		case <-timer.C:
		case <-ctx.Done():
		case err := <-broken:
			l.mu.Lock()
			l.sendErr = err
			l.mu.Unlock()
		}
		break
	}
	cancel()
	l.shut()
	l.lib.Close()
	if r := <-done; r.conn != nil {
		_ = r.conn.Close() // too late; the shut link sends no deallocation
	}
	_, _, sendErr := l.learnt()
	return nil, &failure{words: explainSilence(l.transport, l.server, sendErr), silent: true}
}

// result evaluates the library's Allocate.
func (l *link) result(conn net.PacketConn, err error, s Server) (net.PacketConn, *failure) {
	got, refusal, sendErr := l.learnt()
	switch {
	case err == nil && (!got.relayed.IsValid() || got.relayed.Port() == 0 || got.relayed.Addr().IsUnspecified() || got.lifetime < minLifetime):
		l.shut() // otherwise the library would keep refreshing
		if conn != nil {
			_ = conn.Close()
		}
		return nil, &failure{words: fmt.Sprintf("the server gives the relayed address %v for %v: not usable; see its relay-ip, external-ip and max-allocate-lifetime settings (coturn)", got.relayed, got.lifetime)}
	case err == nil:
		return conn, nil
	case l.isOpen():
		return nil, &failure{words: "the server asks for no credentials: switch on lt-cred-mech or use-auth-secret there (coturn)"}
	case refusal.class == classError:
		return nil, &failure{words: explainCode(refusal, s, time.Now()), code: refusal.code}
	}
	select {
	case <-l.heard:
	default:
		return nil, &failure{words: explainSilence(l.transport, l.server, sendErr), silent: true}
	}
	return nil, &failure{words: fmt.Sprintf("allocate: %s", cause(err)), silent: true}
}
