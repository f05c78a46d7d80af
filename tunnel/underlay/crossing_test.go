package underlay

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

// selected makes a Bind with a managed peer at a socket, over the path that is selected.
func selected(t *testing.T) (b *running, x conn.Endpoint, c *net.UDPConn) {
	t.Helper()
	b, x, _ = managed(t, New)
	c = plain(t, loopback4)
	path := peer.Direct(localAddr(c))
	b.SetCandidates("x", []peer.Path{path})
	b.SetSelected("x", path)
	return b, x, c
}

// Whoever forges the source of a path fills what is held of a peer's initiations: the
// peer's own must not be lost for it.
func TestForgedCopiesDoNotCrowdOutTheInitiationThatCrosses(t *testing.T) {
	b, x, c := selected(t)
	b.Insist("x")
	mustSend(t, b, x, initiation(1))
	expect(t, c, "our initiation", initiation(1))
	const genuine = 100
	for i := range uint32(mostHeld) {
		write(t, c, initiation(10+i), b.addr())
	}
	write(t, c, initiation(genuine), b.addr())
	// Those that are held come 250 ms later, or before it on a machine that is very slow.
	for got := uint32(0); got != genuine; {
		got = binary.LittleEndian.Uint32(b.next(t).data[4:])
	}
}

// What comes after a response waits until the device has taken that, on either side.
func TestInitiationAfterAResponseWaitsForIt(t *testing.T) {
	b, x, c := selected(t)
	// On a machine that is very slow the time that it waits at the most ends before the test
	// has looked: then it looks again.
	for round := uint32(1); ; round++ {
		index, theirs := 2*round, 1000+round
		mustSend(t, b, x, initiation(index))
		expect(t, c, "our initiation", initiation(index))
		start := time.Now()
		write(t, c, responseOf(theirs, index), b.addr())
		if got := b.next(t).data; got[0] != typeResponse {
			t.Fatalf("got a message of type %d, want the response", got[0])
		}
		write(t, c, initiation(index+1), b.addr())
		marker := data(uint64(round), 64)
		write(t, c, marker, b.addr())
		if got := b.next(t).data; !bytes.Equal(got, marker) {
			if time.Since(start) < crossingTime {
				t.Fatalf("got a message of type %d, want only what came after the initiation", got[0])
			}
			b.next(t)
			continue
		}
		taken := data(uint64(round), 64)
		binary.LittleEndian.PutUint32(taken[4:], theirs)
		mustSend(t, b, x, taken)
		got := b.next(t).data
		if want := initiation(index + 1); !bytes.Equal(got, want) {
			t.Fatalf("got %.20x, want the initiation", got)
		}
		expect(t, c, "our data", taken)
		if time.Since(start) < crossingTime {
			return // It did not wait for its time to be up.
		}
		if round == 20 {
			t.Fatal("it always waited for its time to be up, though the response was taken")
		}
	}
}

// If the device does not take the response, it gets the initiation all the same.
func TestInitiationAfterAResponseThatIsNotTaken(t *testing.T) {
	b, x, c := selected(t)
	mustSend(t, b, x, initiation(1))
	expect(t, c, "our initiation", initiation(1))
	write(t, c, responseOf(5, 1), b.addr())
	if got := b.next(t).data; got[0] != typeResponse {
		t.Fatalf("got a message of type %d, want the response", got[0])
	}
	write(t, c, initiation(2), b.addr())
	if got := b.next(t).data; !bytes.Equal(got, initiation(2)) {
		t.Errorf("got %.20x, want the initiation", got)
	}
}

// A device that works on both at once may accept a response after it has answered an
// initiation: then it can read nothing of the session.
func TestResponseAcceptedAfterAnAnswerMakesADeadSession(t *testing.T) {
	for name, mixed := range map[string]bool{"mixed up": true, "in order": false} {
		t.Run(name, func(t *testing.T) {
			b, x, done := managed(t, New)
			dead := newQueue[completed]()
			b.OnDeadSession(func(id string, p peer.Path) { dead.put(completed{id, p}) })
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

// Two initiations have undone each other when each was answered, in whichever order that shows.
func TestInitiationsThatUndoEachOtherAreTold(t *testing.T) {
	const young, old = time.Hour, -crossingTime // whatever time the test takes
	for name, c := range map[string]struct {
		responseFirst bool
		age           time.Duration // when our initiation was sent, from now
		taken         bool          // data has come by our answer
		want          bool
	}{
		"we answer first":                        {false, young, false, true},
		"the peer's answer is there first":       {true, young, false, true},
		"the peer took our answer":               {false, young, true, false},
		"an answer that was refused of long ago": {true, old, false, false},
		"an answer that comes late":              {false, old, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, x, _ := managed(t, New)
			told := newQueue[string]()
			b.OnCrossing(func(id string) { told.put(id) })
			conn := plain(t, loopback4)
			b.SetCandidates("x", []peer.Path{peer.Direct(localAddr(conn))})
			mustSend(t, b, x, initiation(1))
			expect(t, conn, "our initiation", initiation(1))
			b.handshakes.mu.Lock()
			s := &b.handshakes.begun[1].handshake
			s.begunAt = s.begunAt.Add(c.age)
			b.handshakes.mu.Unlock()

			answer := func(index uint32) {
				write(t, conn, responseOf(index, 1), b.addr())
				b.next(t)
			}
			if c.responseFirst {
				answer(5)
			}
			write(t, conn, initiation(9), b.addr())
			b.next(t)
			mustSend(t, b, x, responseOf(2, 9))
			expect(t, conn, "our response", responseOf(2, 9))
			if c.taken {
				first := data(1, 64)
				binary.LittleEndian.PutUint32(first[4:], 2)
				write(t, conn, first, b.addr())
				b.next(t)
			}
			if !c.responseFirst {
				answer(5)
				answer(6) // somebody's who has seen it
			}
			if c.want {
				if id := told.next(t); id != "x" {
					t.Errorf("got a crossing with %q, want x", id)
				}
			}
			told.nothing(t)
		})
	}
}
