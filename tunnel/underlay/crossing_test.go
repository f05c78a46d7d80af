package underlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"testing"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
)

// selected returns a Bind with a managed peer at a socket, whose path is selected.
func selected(t *testing.T) (b *running, x conn.Endpoint, c *net.UDPConn) {
	t.Helper()
	b, x, _ = managed(t, New)
	c = plain(t, loopback4)
	path := peer.Direct(localAddr(c))
	b.SetCandidates("x", []peer.Path{path})
	b.SetSelected("x", path)
	return b, x, c
}

// told returns the kinds of the reported events.
func told(q queue[handshake.Event]) (all []handshake.EventKind) {
	for len(q) > 0 {
		all = append(all, (<-q).Kind)
	}
	return all
}

// An initiation that arrives on a working path, while one of ours is on its way there, waits for
// a decision. All others pass.
func TestInitiationsThatMayCrossWait(t *testing.T) {
	for name, c := range map[string]struct {
		ours, answered, elsewhere bool
		want                      bool
	}{
		"ours is on its way":           {ours: true, want: true},
		"none of ours is":              {},
		"the device has forgotten it":  {ours: true, answered: true},
		"over a path that is not used": {ours: true, elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, x, path := selected(t)
			events := newQueue[handshake.Event]()
			decide(b.Bind, events.put)
			if c.ours {
				mustSend(t, b, x, initiation(1))
				expect(t, path, "our initiation", initiation(1))
			}
			if c.answered {
				b.again(t, func() { write(t, path, initiation(9), b.addr()) })
				mustSend(t, b, x, responseOf(2, 9))
				expect(t, path, "our response", responseOf(2, 9))
			}
			told(events)
			from := path
			if c.elsewhere {
				from = plain(t, loopback4)
			}
			write(t, from, initiation(3), b.addr())
			if got := b.next(t).data; !bytes.Equal(got, initiation(3)) && !c.answered {
				t.Errorf("got %.20x, want the initiation", got)
			}
			if got := slices.Contains(told(events), handshake.Arrived); got != c.want {
				t.Errorf("waits: %v, want %v", got, c.want)
			}
		})
	}
}

// An initiation that waits is sent to nobody until Initiate, and never to a peer that is gone.
func TestOfferedInitiationsWait(t *testing.T) {
	b, x, path := selected(t)
	b.Listen(func() {})
	mustSend(t, b, x, initiation(1))
	expectSilence(t, path)
	events := b.Events()
	if len(events) != 1 || events[0].Kind != handshake.Made || events[0].Peer != "x" || len(b.Events()) > 0 {
		t.Fatalf("got %+v, want one initiation that is offered", events)
	}
	for range 2 { // the same one again is no second one
		if err := b.Initiate("x", events[0].Initiation.Message); err != nil {
			t.Fatal(err)
		}
		expect(t, path, "our initiation", initiation(1))
	}
	if got := len(b.handshakes.begun); got != 1 {
		t.Errorf("%d initiations are on their way, want 1", got)
	}
	b.Forget("x")
	if err := b.Initiate("x", events[0].Initiation.Message); !errors.Is(err, ErrNoCandidates) {
		t.Errorf("to a peer that is gone: got %v, want ErrNoCandidates", err)
	}
	// Nobody reads the events: those beyond the queue pass at once.
	b.Manage("x")
	b.SetCandidates("x", direct(localAddr(path)))
	x, _ = b.ParseEndpoint("peer:x")
	for i := range uint32(eventsKept + 1) {
		mustSend(t, b, x, initiation(i))
	}
	expect(t, path, "what there was no room for", initiation(eventsKept))
}

// A device that processes both at once may accept a response after it has answered an initiation.
// Then it can read nothing of the session.
func TestResponseAcceptedAfterAnAnswerMakesADeadSession(t *testing.T) {
	for name, mixed := range map[string]bool{"mixed up": true, "in order": false} {
		t.Run(name, func(t *testing.T) {
			b, x, done := managed(t, New)
			dead := newQueue[completed]()
			decide(b.Bind, func(e handshake.Event) {
				began(done)(e)
				if e.Kind == handshake.BeganDead {
					dead.put(completed{e.Peer, e.Path})
				}
			})
			c := plain(t, loopback4)
			path := peer.Direct(localAddr(c))
			b.SetCandidates("x", []peer.Path{path})
			mustSend(t, b, x, initiation(1))
			expect(t, c, "our initiation", initiation(1))
			if mixed {
				write(t, c, initiation(9), b.addr())
				b.next(t)
				mustSend(t, b, x, responseOf(2, 9))
				expect(t, c, "our response", responseOf(2, 9))
			}
			write(t, c, responseOf(5, 1), b.addr())
			b.next(t)
			first := data(1, 64)
			binary.LittleEndian.PutUint32(first[4:], 5)
			mustSend(t, b, x, first)
			expect(t, c, "our data", first)
			if mixed {
				done.nothing(t)
				done = dead
			} else {
				dead.nothing(t)
			}
			if got, want := <-done, (completed{"x", path}); got != want {
				t.Errorf("told %+v, want %+v", got, want)
			}
		})
	}
}

// The peer begins a session with our answer, but we have discarded it since: we can send nothing
// in it.
func TestSessionThatWasGivenUpBeginsDead(t *testing.T) {
	b, x, c := selected(t)
	events := newQueue[handshake.Event]()
	decide(b.Bind, events.put)
	for index, want := range map[uint32]handshake.EventKind{1: handshake.BeganDead, 2: handshake.Began} {
		write(t, c, initiation(index), b.addr())
		b.next(t)
		mustSend(t, b, x, responseOf(10+index, index))
		expect(t, c, "our response", responseOf(10+index, index))
		if want == handshake.BeganDead {
			b.GaveUp("x")
		}
		write(t, c, sessionData(10+index), b.addr())
		b.next(t)
		if got := told(events); !slices.Equal(got, []handshake.EventKind{handshake.Responded, want}) {
			t.Errorf("got %v, want it answered, and %v", got, want)
		}
	}
}

// Whether two initiations have undone each other follows from the events, in any order, and from
// the first response only.
func TestWhatHappensToInitiationsIsTold(t *testing.T) {
	for name, responseFirst := range map[string]bool{"we answer first": false, "the peer's answer is there first": true} {
		t.Run(name, func(t *testing.T) {
			b, x, _ := managed(t, New)
			events := newQueue[handshake.Event]()
			decide(b.Bind, events.put)
			conn := plain(t, loopback4)
			b.SetCandidates("x", []peer.Path{peer.Direct(localAddr(conn))})
			mustSend(t, b, x, initiation(1))
			expect(t, conn, "our initiation", initiation(1))
			answer := func(index uint32) {
				write(t, conn, responseOf(index, 1), b.addr())
				b.next(t)
			}
			want := []handshake.EventKind{handshake.Made, handshake.Responded, handshake.ResponseCame, handshake.CookieCame}
			if responseFirst {
				answer(5)
				want = []handshake.EventKind{handshake.Made, handshake.ResponseCame, handshake.Responded, handshake.CookieCame}
			}
			write(t, conn, initiation(9), b.addr())
			b.next(t)
			mustSend(t, b, x, responseOf(2, 9))
			expect(t, conn, "our response", responseOf(2, 9))
			if !responseFirst {
				answer(5)
				answer(6) // from someone who has seen it
			}
			reply := make([]byte, sizeCookieReply)
			reply[0] = typeCookieReply
			binary.LittleEndian.PutUint32(reply[4:], 1)
			write(t, conn, reply, b.addr())
			b.next(t)
			if got := told(events); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
