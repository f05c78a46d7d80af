package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
)

const (
	// reopenEvery is how often a listener that could not be opened is tried again.
	reopenEvery = 2 * time.Second
	// acceptPause is the rest after a failed accept, which is for want of descriptors
	// (EMFILE) or memory: trying at once would burn the processor that could free them.
	acceptPause = 100 * time.Millisecond
)

// local is one listener and its goroutine.
type local struct {
	out    *Outbound
	want   Local
	ctx    context.Context // done when the listener is to close
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	mu  sync.Mutex
	ln  net.Listener // nil while it cannot be opened
	err error
}

// openLocal tries to listen once, so that the outcome is known on return, and starts the
// goroutine that accepts or tries again.
func openLocal(o *Outbound, w Local) *local {
	ctx, cancel := context.WithCancel(context.Background())
	l := &local{out: o, want: w, ctx: ctx, cancel: cancel, done: make(chan struct{})}
	l.open()
	go l.run()
	return l
}

func (l *local) key() localKey { return localKey{l.want.Peer, l.want.Service} }

// serves reports whether the listener is already what is wanted.
func (l *local) serves(w Local) bool {
	s := l.state()
	if w.Address == "" {
		// Any port will do, but an address that was asked for and is no longer
		// gives way to a port of its own.
		return l.want.Address == "" && s.Err == nil
	}
	return w.Address == l.want.Address || (s.Err == nil && w.Address == s.Address)
}

// state is the listener as the status shows it.
func (l *local) state() LocalState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LocalState{Peer: l.want.Peer, Service: l.want.Service, Address: l.want.Address, Err: l.err}
	if l.ln != nil {
		s.Address = l.ln.Addr().String()
	}
	return s
}

// open listens, and keeps the listener or the error.
func (l *local) open() {
	ln, err := l.listen()
	l.mu.Lock()
	first := l.err == nil
	l.ln, l.err = ln, err
	l.mu.Unlock()
	if err != nil && first {
		p := catalogue.Params{Peer: l.want.Peer, Service: l.want.Service, Address: l.want.Address, Detail: err.Error()}
		l.out.opts.Logger.LogAttrs(l.ctx, slog.LevelWarn, "local listener cannot be opened",
			warning(DirectionOutbound, catalogue.LocalListener, p)...)
	}
}

// listen tries the address that was asked for, or else the remembered port and then any
// free one.
func (l *local) listen() (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive()}
	if l.want.Address != "" {
		ln, err := lc.Listen(l.ctx, "tcp", l.want.Address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s for %s of %s: %w", l.want.Address, l.want.Service, l.want.Peer, err)
		}
		return ln, nil
	}
	host := l.out.opts.Host
	if a, err := netip.ParseAddrPort(l.want.Remembered); err == nil {
		if ln, err := lc.Listen(l.ctx, "tcp", netip.AddrPortFrom(host, a.Port()).String()); err == nil {
			return ln, nil
		}
	}
	ln, err := lc.Listen(l.ctx, "tcp", netip.AddrPortFrom(host, 0).String())
	if err != nil {
		return nil, fmt.Errorf("listen on a port of %s for %s of %s: %w", host, l.want.Service, l.want.Peer, err)
	}
	return ln, nil
}

// run accepts connections until close.
func (l *local) run() {
	defer close(l.done)
	for l.ctx.Err() == nil {
		l.mu.Lock()
		ln := l.ln
		l.mu.Unlock()
		if ln == nil {
			l.pause(reopenEvery)
			if l.ctx.Err() == nil {
				l.open()
			}
			continue
		}
		c, err := ln.Accept()
		switch {
		case err == nil:
			l.accepted(c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			l.pause(acceptPause)
		}
	}
	// Opened while close was under way.
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ln != nil {
		l.ln.Close()
	}
}

// accepted starts the goroutine that carries a connection; the table waits for it.
func (l *local) accepted(c net.Conn) {
	tcp, ok := c.(Conn)
	if !ok {
		c.Close()
		return
	}
	if f := l.out.admit(l.want, tcp); f != nil {
		go l.out.carry(l.want, f, tcp)
	}
}

// pause waits, or returns early when the listener is to close.
func (l *local) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ctx.Done():
	}
}

// close ends the listener and waits for its goroutine.
func (l *local) close() {
	l.cancel()
	l.mu.Lock()
	if l.ln != nil {
		l.ln.Close()
	}
	l.mu.Unlock()
	<-l.done
}
