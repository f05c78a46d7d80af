package relay

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/turn/v4"
)

const (
	// answerTimeout is when an answer counts as missing. With requests at 0, 200, 600 and 1400 ms,
	// and a loss of one datagram in ten each way, one exchange in 800 fails.
	answerTimeout = 1900 * time.Millisecond
	firstResend   = 200 * time.Millisecond
	maxResend     = 1600 * time.Millisecond
	// keptFor is how long a transaction is stored, so that late and repeated answers are recognised
	// as ours: the library's last retransmission is at 7.8 s.
	keptFor = 15 * time.Second
)

var errNoAnswer = errors.New("no answer")

// errRefused says that the server refused; its answer says why.
var errRefused = errors.New("refused")

// link is the connection to a server. It carries the library's messages and those of this package,
// and examines all answers first. It is the library's net.PacketConn. It is safe for concurrent
// use.
type link struct {
	transport string
	server    place
	from      net.Addr // the same, for the library
	password  Secret
	write     func(b []byte) error // never blocks for long
	// writeRun is write for several at once; nil = not supported.
	writeRun func(bs [][]byte) error
	// data receives datagrams that the server passes on: on a channel, or with their source. nil =
	// there is no allocation yet.
	data      atomic.Pointer[inbound]
	lib       *turn.Client // set before anything can arrive
	malformed *atomic.Uint64

	heard chan struct{} // closed at the server's first answer
	first sync.Once
	asked int // the library's Allocate requests so far; owned by the allocating goroutine

	mu        sync.Mutex // guards the following
	closed    bool
	pending   map[txID]*transaction
	creds     credentials
	allocated message // the latest success of Allocate
	refusal   message // the latest error, except for the challenge that precedes credentials
	sendErr   error   // the latest failure of write
	open      bool    // the server requires no credentials
}

// inbound receives datagrams that the server passes on.
type inbound struct {
	onChannel func(number uint16, payload []byte)
	receive   func(payload []byte, from netip.AddrPort)
}

// transaction is a sent request.
type transaction struct {
	sent   time.Time
	signed bool
	answer chan message // nil = the library's
}

func newLink(transport string, server place, s Server, malformed *atomic.Uint64) *link {
	return &link{
		transport: transport, server: server, from: net.UDPAddrFromAddrPort(server.addr), password: s.Password, malformed: malformed,
		heard: make(chan struct{}), pending: make(map[txID]*transaction),
		creds: credentials{username: s.Username},
	}
}

// WriteTo sends for the library. It fails only if the link is closed: what the network rejects
// counts as lost, since the library keeps a transaction whose first write failed without anyone
// waiting for its answer.
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

// rememberLocked stores a transaction, and forgets old ones.
func (l *link) rememberLocked(id txID, t *transaction) {
	if old := l.pending[id]; old != nil { // a retransmission
		return
	}
	maps.DeleteFunc(l.pending, func(_ txID, p *transaction) bool { return t.sent.Sub(p.sent) > keptFor })
	l.pending[id] = t
}

// handle handles a packet from the server and reports whether it was for us: other users of the
// socket may use the same server.
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

// indicated handles a datagram that came without a channel.
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

// send sends frames, and returns how many failed.
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

// toLibrary passes on an answer that parse has found well-formed.
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

// answered handles a response to the library's transaction or to one of ours.
func (l *link) answered(packet []byte, m message) bool {
	l.mu.Lock()
	t := l.pending[m.tx]
	if t == nil || l.closed {
		l.mu.Unlock()
		return false
	}
	// The library accepts every answer as genuine. A success must be signed with our key (RFC 8489
	// §9.2.5); errors before there is a key cannot be.
	switch {
	case m.class != classSuccess || m.method == methodBinding || l.creds.verify(packet, m):
		l.learnLocked(m, t.signed)
	case t.signed || m.integrity != 0:
		l.mu.Unlock()
		l.malformed.Add(1)
		return true
	default:
		// This server requires no credentials. The library takes the answer for an error, since it
		// has no nonce, and ends its transaction.
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
	default: // a repeated answer
	}
	return true
}

// learnLocked stores what the library does not expose.
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

// exchange sends a request and waits for the answer, for answerTimeout at most. A stale nonce is
// replaced and the request repeated. The error is errNoAnswer or the context's.
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

// once is one transaction, with retransmissions. The round trip is 0 if it is unknown which request
// was answered.
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

// shut closes the link: nothing is sent or received any more.
func (l *link) shut() {
	l.data.Store(nil)
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}

// learnt returns what the server's answers have told so far.
func (l *link) learnt() (allocated, refusal message, sendErr error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allocated, l.refusal, l.sendErr
}

// The rest of net.PacketConn. The library calls none of it unless its Listen is called.

// ReadFrom reads nothing: input goes to HandleInbound.
func (l *link) ReadFrom([]byte) (int, net.Addr, error) { return 0, nil, net.ErrClosed }

// Close does nothing; the link's owner shuts it.
func (l *link) Close() error { return nil }

// LocalAddr is unknown here.
func (l *link) LocalAddr() net.Addr { return &net.UDPAddr{} }

// SetDeadline does nothing, since neither reads nor writes block.
func (l *link) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (l *link) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (l *link) SetWriteDeadline(time.Time) error { return nil }
