package underlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
)

// completed is a report about a session that has begun.
type completed struct {
	id   string
	path peer.Path
}

// decide makes a Bind's initiations pass at once, and passes on the events.
func decide(b *Bind, tell func(handshake.Event)) {
	b.Listen(func() {
		for _, e := range b.Events() {
			switch e.Kind {
			case handshake.Made:
				_ = b.Initiate(e.Peer, e.Initiation.Message) // as for a peer that does not answer
			case handshake.Arrived:
				b.Deliver(e.Initiation)
			}
			tell(e)
		}
	})
}

// began returns a function that queues the sessions that have begun alive.
func began(done queue[completed]) func(handshake.Event) {
	return func(e handshake.Event) {
		if e.Kind == handshake.Began {
			done.put(completed{e.Peer, e.Path})
		}
	}
}

// managed starts a Bind with the managed peer x.
func managed(t *testing.T, make func(Options) *Bind) (b *running, x conn.Endpoint, done queue[completed]) {
	t.Helper()
	b, done = start(t, make(Options{})), newQueue[completed]()
	decide(b.Bind, began(done))
	b.Manage("x")
	x, err := b.ParseEndpoint("peer:x")
	if err != nil {
		t.Fatal(err)
	}
	return b, x, done
}

func mustSend(t *testing.T, b *running, ep conn.Endpoint, p []byte) {
	t.Helper()
	if err := b.Send([][]byte{p}, ep); err != nil {
		t.Fatalf("send: %v", err)
	}
}

func expect(t *testing.T, c *net.UDPConn, what string, want []byte) {
	t.Helper()
	if got, _ := read(t, c); !bytes.Equal(got, want) {
		t.Errorf("%s: got %.20x, want %.20x", what, got, want)
	}
}

// nothing fails if a handshake was reported. Callbacks run before the read or next that returns
// their message.
func (q queue[T]) nothing(t *testing.T) {
	t.Helper()
	if len(q) > 0 {
		t.Errorf("got %v, want nothing", <-q)
	}
}

// sessionData returns a data message with a receiver index.
func sessionData(receiver uint32) []byte {
	b := data(1, 48)
	binary.LittleEndian.PutUint32(b[4:], receiver)
	return b
}

// responseOf returns a response with its own sender index.
func responseOf(sender, receiver uint32) []byte {
	b := response(receiver)
	binary.LittleEndian.PutUint32(b[4:], sender)
	binary.LittleEndian.PutUint32(b[12:], sender) // the ephemeral key
	return b
}

func TestManagedEndpointIsKnownBeforeAnyPathIs(t *testing.T) {
	b, x, _ := managed(t, New)
	b.Listen(nil)
	for _, p := range [][]byte{data(1, 48), initiation(1), response(1)} {
		if err := b.Send([][]byte{p}, x); !errors.Is(err, ErrNoCandidates) {
			t.Errorf("send without paths: got %v, want %v", err, ErrNoCandidates)
		}
	}
	if p := b.PathTo("x"); p.IsValid() || x.DstIP().IsValid() || x.DstToBytes() != nil {
		t.Errorf("an endpoint without paths has the path %v", p)
	}
	c := plain(t, loopback4)
	b.SetCandidates("x", direct(localAddr(c)))
	mustSend(t, b, x, data(1, 48))
	expect(t, c, "the candidate", data(1, 48))
	b.SetCandidates("x", nil)
	if again, err := b.ParseEndpoint("peer:x"); err != nil || again != x {
		t.Errorf("without paths the endpoint is another: %v, %v", again, err)
	}
	b.SetSelected("x", peer.Direct(localAddr(c)))
	b.Forget("x")
	if err := b.Send([][]byte{data(1, 48)}, x); !errors.Is(err, ErrNoCandidates) {
		t.Errorf("send to a forgotten peer: got %v, want %v", err, ErrNoCandidates)
	}
	b.SetSelected("x", peer.Direct(localAddr(c))) // nobody listens there
	if _, err := b.ParseEndpoint("peer:x"); err == nil || b.PathTo("x").IsValid() {
		t.Error("a forgotten id is still known")
	}
	expectSilence(t, c)
}

func TestManagedPeersDataTakesTheSelectedPath(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b, x, _ := managed(t, make)
		first, second, chosen := plain(t, loopback4), plain(t, loopback4), plain(t, loopback4)
		b.SetCandidates("x", direct(localAddr(first), localAddr(second)))
		b.SetSelected("x", peer.Direct(localAddr(chosen)))
		mustSend(t, b, x, initiation(1))
		expect(t, first, "first candidate", initiation(1))
		expect(t, second, "second candidate", initiation(1))
		mustSend(t, b, x, data(1, 48))
		expect(t, chosen, "selected", data(1, 48))
		if got := b.PathTo("x"); got != peer.Direct(localAddr(chosen)) {
			t.Errorf("path: got %v, want the selected %v", got, localAddr(chosen))
		}
		b.SetSelected("x", peer.Path{})
		mustSend(t, b, x, data(2, 48))
		expect(t, first, "first candidate, nothing selected", data(2, 48))
		for _, c := range []*net.UDPConn{first, second, chosen} {
			expectSilence(t, c)
		}
	})
}

func TestManagedPeersResponseGoesToTheSourceOfTheInitiation(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b, x, _ := managed(t, make)
		chosen, source := plain(t, loopback4), plain(t, loopback4)
		b.SetCandidates("x", direct(localAddr(chosen)))
		b.SetSelected("x", peer.Direct(localAddr(chosen)))
		write(t, source, initiation(5), b.addr())
		b.next(t)
		mustSend(t, b, x, response(5))
		expect(t, source, "source of the initiation", response(5))
		expectSilence(t, chosen)
		// For a forgotten initiation, the path of data is the best guess.
		mustSend(t, b, x, response(6))
		expect(t, chosen, "selected", response(6))
	})
}

func TestInitiatorLearnsThePathOfTheResponseThatTheDeviceTook(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b, x, done := managed(t, make)
		dead, living, chosen := plain(t, loopback4), plain(t, loopback4), plain(t, loopback4)
		b.SetCandidates("x", direct(localAddr(dead), localAddr(living)))
		mustSend(t, b, x, initiation(5))
		expect(t, dead, "first candidate", initiation(5))
		expect(t, living, "second candidate", initiation(5))
		write(t, living, responseOf(77, 5), b.addr())
		b.next(t)
		mustSend(t, b, x, sessionData(76)) // of the session before
		expect(t, dead, "the session before", sessionData(76))
		done.nothing(t)

		// The session's first message takes the path of the response, whatever path is selected;
		// later ones take the selected path.
		b.SetSelected("x", peer.Direct(localAddr(chosen)))
		mustSend(t, b, x, sessionData(77))
		expect(t, living, "the path of the response", sessionData(77))
		want := completed{"x", peer.Direct(localAddr(living))}
		if got := done.next(t); got != want {
			t.Errorf("handshake: got %v, want %v", got, want)
		}
		mustSend(t, b, x, sessionData(77))
		expect(t, chosen, "selected", sessionData(77))
		b.SetSelected("x", peer.Path{})
		mustSend(t, b, x, sessionData(77))
		expect(t, living, "what the handshake proved", sessionData(77))
		done.nothing(t)
	})
}

func TestForgedResponsesMoveNothing(t *testing.T) {
	b, x, done := managed(t, New)
	c, forger := plain(t, loopback4), plain(t, loopback4)
	b.SetCandidates("x", direct(localAddr(c)))
	mustSend(t, b, x, initiation(5))
	expect(t, c, "initiation", initiation(5))
	for i := range uint32(10) {
		write(t, forger, responseOf(100+i, 5), b.addr()) // can read the traffic, but has no key
		b.next(t)
		write(t, forger, responseOf(200+i, 6), b.addr()) // guesses the index
		b.next(t)
	}
	mustSend(t, b, x, sessionData(200))
	expect(t, c, "data", sessionData(200))
	done.nothing(t)

	write(t, c, responseOf(77, 5), b.addr())
	b.next(t)
	mustSend(t, b, x, sessionData(77))
	expect(t, c, "data", sessionData(77))
	if got := done.next(t); got.path != peer.Direct(localAddr(c)) {
		t.Errorf("handshake over %v, want %v", got.path, localAddr(c))
	}
	b.again(t, func() { write(t, forger, responseOf(77, 5), b.addr()) }) // too late
	mustSend(t, b, x, sessionData(77))
	expect(t, c, "data", sessionData(77))
	done.nothing(t)
	expectSilence(t, forger)
}

func TestForgerWhoIsFasterWithACopyMovesNothing(t *testing.T) {
	b, x, done := managed(t, New)
	c, forger := plain(t, loopback4), plain(t, loopback4)
	b.SetCandidates("x", direct(localAddr(c)))
	mustSend(t, b, x, initiation(5))
	expect(t, c, "initiation", initiation(5))
	write(t, forger, responseOf(77, 5), b.addr())
	b.next(t)
	b.again(t, func() { write(t, c, responseOf(77, 5), b.addr()) })
	mustSend(t, b, x, sessionData(77))
	expect(t, c, "data", sessionData(77))
	if got := done.next(t); got.path != peer.Direct(localAddr(c)) {
		t.Errorf("handshake over %v, want %v", got.path, localAddr(c))
	}
}

func TestResponderLearnsThePathOfTheSessionsFirstData(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b, x, done := managed(t, make)
		fast, slow, stranger := plain(t, loopback4), plain(t, loopback4), plain(t, loopback4)
		b.SetCandidates("x", direct(localAddr(fast), localAddr(slow)))
		write(t, fast, initiation(5), b.addr())
		b.next(t)
		mustSend(t, b, x, responseOf(77, 5))
		b.again(t, func() { write(t, slow, initiation(5), b.addr()) })
		expect(t, fast, "source of the first copy", responseOf(77, 5)) // say it was lost on the way
		expect(t, slow, "source of the second copy", responseOf(77, 5))

		write(t, stranger, sessionData(77), b.addr())
		b.next(t)
		write(t, slow, sessionData(76), b.addr())
		b.next(t)
		done.nothing(t)
		write(t, slow, sessionData(77), b.addr())
		b.next(t)
		want := completed{"x", peer.Direct(localAddr(slow))}
		if got := done.next(t); got != want {
			t.Errorf("handshake: got %v, want %v", got, want)
		}
		mustSend(t, b, x, sessionData(3))
		expect(t, slow, "what the handshake proved", sessionData(3))
		write(t, fast, sessionData(77), b.addr())
		b.next(t)
		done.nothing(t) // only the first counts
		expectSilence(t, stranger)
	})
}

func TestLearnedPathAnswersFromTheAddressSpokenTo(t *testing.T) {
	for _, k := range kinds {
		if !k.sticky {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			b, x, done := managed(t, k.make)
			c := plain(t, loopback4)
			second := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), b.port)
			write(t, c, initiation(5), second)
			b.next(t)
			mustSend(t, b, x, responseOf(77, 5))
			read(t, c)
			write(t, c, sessionData(77), second)
			b.next(t)
			done.next(t)
			b.SetSelected("x", peer.Direct(localAddr(c))) // the same path
			for _, want := range []netip.AddrPort{second, b.addr()} {
				mustSend(t, b, x, data(1, 48))
				if _, from := read(t, c); from != want {
					t.Errorf("data came from %v, want %v", from, want)
				}
				x.ClearSrc() // as the device does when a handshake is not answered
			}
		})
	}
}

func TestHandshakeBooksAreBoundedByPeers(t *testing.T) {
	b, x, _ := managed(t, New)
	c := plain(t, loopback4)
	b.SetCandidates("x", direct(localAddr(c)))
	for i := range uint32(1000) {
		mustSend(t, b, x, initiation(i))
		mustSend(t, b, x, responseOf(i, i))
		write(t, c, responseOf(7, 2000+i), b.addr())
		b.next(t)
	}
	if h := &b.handshakes; len(h.begun) != 1 || len(h.answers) != 1 || h.awaiting.Load() != 1 {
		t.Errorf("one peer has %d initiations and %d responses", len(h.begun), len(h.answers))
	}
	b.Forget("x")
	if h := &b.handshakes; len(h.begun) != 0 || len(h.answers) != 0 || h.awaiting.Load() != 0 {
		t.Errorf("a forgotten peer has %d initiations and %d responses", len(h.begun), len(h.answers))
	}
}

func TestUnmanagedPeersLearnNothing(t *testing.T) {
	b, done := start(t, New(Options{})), newQueue[completed]()
	decide(b.Bind, began(done))
	first, second := plain(t, loopback4), plain(t, loopback4)
	b.SetCandidates("x", direct(localAddr(first), localAddr(second)))
	x, err := b.ParseEndpoint("peer:x")
	if err != nil {
		t.Fatal(err)
	}
	mustSend(t, b, x, initiation(5))
	read(t, first)
	read(t, second)
	write(t, second, responseOf(77, 5), b.addr())
	b.next(t)
	mustSend(t, b, x, sessionData(77))
	expect(t, first, "first candidate", sessionData(77))
	done.nothing(t)
}

func TestResponseInVainIsFollowedByOneToStrangersToo(t *testing.T) {
	b, x, done := managed(t, New)
	fast, slow := plain(t, loopback4), plain(t, loopback4)
	b.SetCandidates("x", direct(localAddr(fast)))
	for attempt := range uint32(2) {
		write(t, fast, initiation(attempt), b.addr())
		b.next(t)
		mustSend(t, b, x, responseOf(70+attempt, attempt))
		b.again(t, func() { write(t, slow, initiation(attempt), b.addr()) })
		expect(t, fast, "source of the first copy", responseOf(70+attempt, attempt))
		if attempt == 0 {
			expectSilence(t, slow)
		}
	}
	expect(t, slow, "source that is not known", responseOf(71, 1))
	write(t, slow, sessionData(71), b.addr())
	b.next(t)
	if got := done.next(t); got.path != peer.Direct(localAddr(slow)) {
		t.Errorf("handshake over %v, want %v", got.path, localAddr(slow))
	}
}
