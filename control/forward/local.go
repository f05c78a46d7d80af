package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

const (
	// reopenEvery is how often a listener that could not be opened is tried again.
	reopenEvery = 2 * time.Second
	// acceptPause is the pause after a failed accept, which is caused by a lack of descriptors
	// (EMFILE) or memory: retrying at once would use the processor time that could free them.
	acceptPause = 100 * time.Millisecond
	// unrefusedFor is how long a flow of datagrams must not be refused until it counts as carried: not
	// every service answers.
	unrefusedFor = 5 * time.Second
)

// local is one listener, with a socket for each of its ports, and its goroutines.
type local struct {
	out    *Outbound
	want   Local
	ctx    context.Context // done when the listener is to close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	at    string      // where it is
	socks []io.Closer // none while it cannot be opened
	err   error

	lost atomic.Pointer[loss] // of the last connection or flow; nil if it was carried
}

// loss is why a connection or a flow of datagrams could not be carried to the peer.
type loss struct {
	err   error
	at    time.Time
	tried atomic.Bool // a flow is being watched that has sent since
}

// openLocal tries to listen once, so that the outcome is known on return. If it failed, a goroutine
// tries again.
func openLocal(o *Outbound, w Local) *local {
	ctx, cancel := context.WithCancel(context.Background())
	l := &local{out: o, want: w, ctx: ctx, cancel: cancel}
	if !l.open() {
		l.wg.Go(l.reopen)
	}
	return l
}

func (l *local) key() localKey { return localKey{l.want.Peer, l.want.Service} }

// serves reports whether the listener already is the wanted one.
func (l *local) serves(w Local) bool {
	s := l.state()
	if w.Address == "" {
		// Any port will do, but an address that is no longer configured is replaced by a free port.
		return l.want.Address == "" && l.want.Protocol == w.Protocol && s.Err == nil
	}
	return w.Address == l.want.Address || (s.Err == nil && w.Address == s.Address)
}

// state returns the listener as shown in the status.
func (l *local) state() LocalState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LocalState{Peer: l.want.Peer, Service: l.want.Service, Address: l.want.Address, Err: l.err}
	if x := l.lost.Load(); x != nil {
		s.Lost, s.LostAt = x.err, x.at
	}
	if len(l.socks) > 0 {
		s.Address = l.at
	}
	return s
}

// carried stores whether the last connection or flow was carried to the peer.
func (l *local) carried(err error) {
	if err == nil {
		if l.lost.Load() != nil { // datagrams call this, and rarely is there anything to clear
			l.lost.Store(nil)
		}
		return
	}
	l.lost.Store(&loss{err: err, at: time.Now()})
}

// unrefused stores after a while that a flow that sends a datagram now was carried, if the last one
// was not: if it is still open then, and nothing was lost since.
func (l *local) unrefused(f *udpFlow) {
	x := l.lost.Load()
	if x == nil || !x.tried.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(unrefusedFor, func() {
		if f.open() {
			l.lost.CompareAndSwap(x, nil)
		} else {
			x.tried.Store(false)
		}
	})
}

// open listens, and stores the sockets or the error.
func (l *local) open() bool {
	at, socks, err := l.listen()
	l.mu.Lock()
	first := l.err == nil
	l.at, l.socks, l.err = at, socks, err
	l.mu.Unlock()
	if err != nil && first {
		p := catalogue.Params{Peer: l.want.Peer, Service: l.want.Service, Address: l.want.Address, Detail: catalogue.Reason(err)}
		l.out.opts.Logger.LogAttrs(l.ctx, slog.LevelWarn, "local listener cannot be opened",
			warning(DirectionOutbound, catalogue.LocalListener, p)...)
	}
	return err == nil
}

// reopen tries to listen until it succeeds.
func (l *local) reopen() {
	for l.ctx.Err() == nil {
		l.pause(reopenEvery)
		if l.ctx.Err() != nil || !l.open() {
			continue
		}
		if l.ctx.Err() != nil { // while close was under way
			l.closeSockets()
		}
		return
	}
}

// listen tries the configured address, or if there is none the preferred port and then any free
// one.
func (l *local) listen() (string, []io.Closer, error) {
	if l.want.Address != "" {
		at, err := api.ParseListen(l.want.Address)
		var socks []io.Closer
		if err == nil {
			at, socks, err = l.listenAt(at)
		}
		if err != nil {
			return "", nil, err
		}
		return at.String(), socks, nil
	}
	host := l.out.opts.Host
	one := func(port uint16) api.ListenAddress {
		return api.ListenAddress{Addr: host, Ports: api.Ports{Protocol: l.want.Protocol, First: port, Last: port}}
	}
	if l.want.Port != 0 && !l.out.opts.Avoid(l.want, l.want.Port) {
		if at, socks, err := l.listenAt(one(l.want.Port)); err == nil {
			return at.String(), socks, nil
		}
	}
	at, socks, err := l.out.scan(l.want, func(port uint16) (api.ListenAddress, []io.Closer, error) {
		return l.listenAt(one(port))
	})
	if err != nil {
		return "", nil, fmt.Errorf("a port of %s: %w", host, err)
	}
	return at.String(), socks, nil
}

// ports are the ports for listeners without an address.
type ports struct {
	mu   sync.Mutex
	last int // the nth was tried last
	// full is when all were found to be in use, by protocol. They are not tried again for a while,
	// unless a listener closes.
	full map[api.Protocol]time.Time
}

// scan opens a port for a listener without an address.
func (o *Outbound) scan(w Local, open func(port uint16) (api.ListenAddress, []io.Closer, error)) (at api.ListenAddress, socks []io.Closer, err error) {
	if o.opts.FirstPort == 0 {
		return open(0) // any
	}
	p, protocol := &o.ports, w.Protocol
	p.mu.Lock()
	defer p.mu.Unlock()
	if since, full := p.full[protocol]; full && time.Since(since) < reopenEvery {
		return at, nil, fmt.Errorf("ports %d-%d: %w", o.opts.FirstPort, o.opts.LastPort, syscall.EADDRINUSE)
	}
	n := int(o.opts.LastPort) - int(o.opts.FirstPort) + 1
	for _, avoided := range []bool{false, true} {
		for range n {
			p.last = (p.last + 1) % n
			port := o.opts.FirstPort + uint16(p.last)
			if o.opts.Avoid(w, port) != avoided {
				continue
			}
			at, socks, err = open(port)
			if !errors.Is(err, syscall.EADDRINUSE) {
				delete(p.full, protocol)
				return at, socks, err
			}
		}
	}
	p.full[protocol] = time.Now()
	return at, nil, err
}

// freed records that a port of a protocol may be free again.
func (p *ports) freed(protocol api.Protocol) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.full, protocol)
}

// listenAt opens all ports of an address, or none, and returns them.
func (l *local) listenAt(at api.ListenAddress) (api.ListenAddress, []io.Closer, error) {
	var socks []io.Closer
	for nth := range at.Len() {
		sock, bound, err := l.listenNth(at.Protocol, nth, at.At(nth))
		if err != nil {
			for _, s := range slices.Backward(socks) {
				_ = s.Close()
			}
			return at, nil, err
		}
		socks = append(socks, sock)
		if at.First == 0 {
			at.First, at.Last = bound.Port(), bound.Port()
		}
	}
	return at, socks, nil
}

func (l *local) listenNth(protocol api.Protocol, nth int, at netip.AddrPort) (io.Closer, netip.AddrPort, error) {
	if protocol == api.UDP {
		return l.listenUDP(nth, at)
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive()}
	ln, err := lc.Listen(l.ctx, "tcp", at.String())
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	l.wg.Go(func() { l.accept(ln, nth) })
	return ln, ln.Addr().(*net.TCPAddr).AddrPort(), nil
}

// accept accepts connections until close.
func (l *local) accept(ln net.Listener, nth int) {
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			l.accepted(c, nth)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			l.pause(acceptPause)
		}
	}
}

// accepted starts the goroutine that carries a connection; the table waits for it.
func (l *local) accepted(c net.Conn, nth int) {
	tcp, ok := c.(Conn)
	if !ok {
		c.Close()
		return
	}
	if f := l.out.admit(l.want, tcp); f != nil {
		go l.out.carry(l.want, nth, f, tcp)
	}
}

// pause waits, or returns early when the listener is closed.
func (l *local) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ctx.Done():
	}
}

// close closes the listener and waits for its goroutines.
func (l *local) close() {
	l.cancel()
	l.closeSockets()
	l.wg.Wait()
}

func (l *local) closeSockets() {
	l.mu.Lock()
	socks := l.socks
	l.mu.Unlock()
	for _, s := range socks {
		_ = s.Close()
	}
	if len(socks) > 0 {
		l.out.ports.freed(l.want.Protocol)
	}
}
