package relay

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/turn/v4"
)

const (
	// answerTimeout is when an answer counts as missing. With requests at 0, 200, 600
	// and 1400 ms, a loss of one datagram in ten each way fails one exchange in 800.
	answerTimeout = 1900 * time.Millisecond
	firstResend   = 200 * time.Millisecond
	maxResend     = 1600 * time.Millisecond
	// keptFor is how long a transaction is remembered, so that late and repeated
	// answers are known as ours: the library's last retransmission is at 7.8 s.
	keptFor = 15 * time.Second
)

var errNoAnswer = errors.New("no answer")

// link is the way to a server: it carries the library's messages and those of this
// package, and looks into all that comes back before anyone else does. It is the
// library's net.PacketConn. Safe for concurrent use.
type link struct {
	transport string
	server    place
	from      net.Addr // the same, for the library
	password  Secret
	write     func(b []byte) error // never blocks for long
	// writeRun is write for some at once; nil = there is no such way.
	writeRun func(bs [][]byte) error
	// data takes datagrams that the server passes on: on a channel, or with their source.
	// nil = there is no allocation yet.
	data      atomic.Pointer[inbound]
	lib       *turn.Client // set before anything can come in
	malformed *atomic.Uint64

	heard chan struct{} // closed at the server's first answer
	first sync.Once
	asked int // Allocate requests of the library so far; of whoever allocates

	mu        sync.Mutex // guards what follows
	closed    bool
	pending   map[txID]*transaction
	creds     credentials
	allocated message // the latest success of Allocate
	refusal   message // the latest error, except for the challenge that precedes credentials
	sendErr   error   // the latest failure of write
	open      bool    // the server grants requests without credentials
}

// inbound is who takes datagrams that the server passes on.
type inbound struct {
	onChannel func(number uint16, payload []byte)
	receive   func(payload []byte, from netip.AddrPort)
}

// transaction is a request that was sent.
type transaction struct {
	sent   time.Time
	signed bool
	answer chan message // nil = it is the library's
}

func newLink(transport string, server place, s Server, malformed *atomic.Uint64) *link {
	return &link{
		transport: transport, server: server, from: net.UDPAddrFromAddrPort(server.addr), password: s.Password, malformed: malformed,
		heard: make(chan struct{}), pending: make(map[txID]*transaction),
		creds: credentials{username: s.Username},
	}
}

// WriteTo sends for the library. It fails only when the link is closed: what the
// network refuses is lost like any datagram, since the library keeps a transaction whose
// first write failed, without anyone waiting for its answer.
func (l *link) WriteTo(b []byte, _ net.Addr) (int, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, net.ErrClosed
	}
	if m, err := parse(b); err == nil && m.class == classRequest {
		l.rememberLocked(m.tx, &transaction{sent: time.Now(), signed: m.integrity != 0})
	}
	l.mu.Unlock()
	if err := l.write(b); err != nil {
		l.unsent(err)
	}
	return len(b), nil
}

// rememberLocked notes a transaction, and forgets old ones.
func (l *link) rememberLocked(id txID, t *transaction) {
	if old := l.pending[id]; old != nil { // a retransmission
		return
	}
	for k, p := range l.pending {
		if t.sent.Sub(p.sent) > keptFor {
			delete(l.pending, k)
		}
	}
	l.pending[id] = t
}

// handle takes a packet from the server and reports whether it was for us: other users of
// the socket may ask the same server something.
func (l *link) handle(packet []byte) bool {
	if len(packet) > 0 && packet[0]&0xc0 == 0x40 {
		number, payload, ok := readChannelData(packet)
		if !ok {
			l.malformed.Add(1)
			return false
		}
		to := l.data.Load()
		if to != nil {
			to.onChannel(number, payload)
		}
		return to != nil
	}
	m, err := parse(packet)
	if err != nil {
		l.malformed.Add(1)
		return false
	}
	switch m.class {
	case classIndication:
		return m.method == methodData && l.indicated(m)
	case classSuccess, classError:
		return l.answered(packet, m)
	}
	return false
}

// indicated takes a datagram that came without a channel.
func (l *link) indicated(m message) bool {
	to := l.data.Load()
	if m.data == nil || !m.peer.IsValid() || m.peer.Port() == 0 {
		l.malformed.Add(1)
		return false
	}
	if to != nil {
		to.receive(m.data, m.peer)
	}
	return to != nil
}

// send sends frames, and says how many failed.
func (l *link) send(frames [][]byte) (unsent int) {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return len(frames)
	}
	if l.writeRun != nil && len(frames) > 1 {
		if err := l.writeRun(frames); err != nil {
			l.unsent(err)
			return len(frames)
		}
		return 0
	}
	for _, b := range frames {
		if err := l.write(b); err != nil {
			l.unsent(err)
			unsent++
		}
	}
	return unsent
}

func (l *link) unsent(err error) {
	l.mu.Lock()
	l.sendErr = err
	l.mu.Unlock()
}

// toLibrary hands over an answer that parse has found well-formed.
func (l *link) toLibrary(packet []byte) bool {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return false
	}
	if _, err := l.lib.HandleInbound(packet, l.from); err != nil {
		l.malformed.Add(1)
	}
	return true
}

// answered takes a response: to the library's transaction or to one of ours.
func (l *link) answered(packet []byte, m message) bool {
	l.mu.Lock()
	t := l.pending[m.tx]
	if t == nil || l.closed {
		l.mu.Unlock()
		return false
	}
	// The library takes every answer for genuine. A success must be signed with our
	// key (RFC 8489 §9.2.5); the errors that precede a key cannot be.
	switch {
	case m.class != classSuccess || m.method == methodBinding || l.creds.verify(packet, m):
		l.learnLocked(m, t.signed)
	case t.signed || m.integrity != 0:
		l.mu.Unlock()
		l.malformed.Add(1)
		return true
	default:
		// A server that asks nobody for credentials. The library takes the answer for an
		// error, since it has no nonce, and ends its transaction.
		l.open = true
	}
	l.mu.Unlock()
	l.first.Do(func() { close(l.heard) })
	if t.answer == nil {
		return l.toLibrary(packet)
	}
	m.realm, m.nonce = bytes.Clone(m.realm), bytes.Clone(m.nonce)
	select {
	case t.answer <- m:
	default: // A repeated answer.
	}
	return true
}

// learnLocked remembers what the library tells nobody.
func (l *link) learnLocked(m message, signed bool) {
	if m.class == classError {
		if signed || m.code != codeUnauthorized {
			l.refusal = m
			l.refusal.realm, l.refusal.nonce = nil, nil
		}
		if m.nonce != nil {
			l.creds.nonce = bytes.Clone(m.nonce)
		}
		if m.realm != nil && !bytes.Equal(m.realm, l.creds.realm) {
			l.creds.realm = bytes.Clone(m.realm)
			l.creds.key = longTermKey(l.creds.username, l.creds.realm, l.password)
		}
	}
	if m.class == classSuccess && m.method == methodAllocate {
		l.allocated = m
	}
}

// exchange asks the server something and waits for the answer, for answerTimeout at
// most. A stale nonce is replaced and the request repeated. The error is errNoAnswer or
// the context's.
func (l *link) exchange(ctx context.Context, method uint16, add func(b []byte, tx txID) []byte) (m message, rtt time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	for try := range 3 {
		if m, rtt, err = l.once(ctx, method, add); err != nil || m.class == classSuccess {
			return m, rtt, err
		}
		// 401 is the challenge, or a restarted server that does not know our nonce.
		if m.code != codeStaleNonce && (m.code != codeUnauthorized || try > 0) {
			break
		}
	}
	return m, rtt, nil
}

// once is one transaction, with retransmissions. The round trip is 0 when it cannot be
// told which request was answered.
func (l *link) once(ctx context.Context, method uint16, add func(b []byte, tx txID) []byte) (message, time.Duration, error) {
	tx := newTxID()
	b := newRequest(method, tx)
	if add != nil {
		b = add(b, tx)
	}
	t := &transaction{sent: time.Now(), answer: make(chan message, 1)}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return message{}, 0, net.ErrClosed
	}
	// Without a realm yet, the answer will be a challenge with one.
	if method != methodBinding && l.creds.key != nil {
		b = l.creds.sign(b)
		t.signed = true
	}
	l.rememberLocked(tx, t)
	l.mu.Unlock()

	resend := time.NewTimer(0)
	defer resend.Stop()
	sends, after := 0, firstResend
	for {
		select {
		case <-resend.C:
			if err := l.write(b); err != nil {
				l.unsent(err)
			}
			sends++
			resend.Reset(after)
			after = min(2*after, maxResend)
		case m := <-t.answer:
			if sends > 1 {
				return m, 0, nil
			}
			return m, time.Since(t.sent), nil
		case <-ctx.Done():
			return message{}, 0, context.Cause(ctx)
		}
	}
}

// isOpen reports whether the server has granted something without credentials.
func (l *link) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// shut ends the link: nothing is sent or taken any more.
func (l *link) shut() {
	l.data.Store(nil)
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}

// learnt is what the server's answers told so far.
func (l *link) learnt() (allocated, refusal message, sendErr error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allocated, l.refusal, l.sendErr
}

// The rest of net.PacketConn. The library calls none of it as long as its Listen is not.

// ReadFrom reads nothing: what comes in goes to HandleInbound.
func (l *link) ReadFrom([]byte) (int, net.Addr, error) { return 0, nil, net.ErrClosed }

// Close does nothing; whoever made the link shuts it.
func (l *link) Close() error { return nil }

// LocalAddr is unknown here.
func (l *link) LocalAddr() net.Addr { return &net.UDPAddr{} }

// SetDeadline does nothing, since neither reads nor writes wait.
func (l *link) SetDeadline(time.Time) error { return nil }

// SetReadDeadline is SetDeadline.
func (l *link) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is SetDeadline.
func (l *link) SetWriteDeadline(time.Time) error { return nil }
