package lan

import (
	"hash/maphash"
	"time"
)

const (
	// echoWait is how long the copy of our own message may take to come back.
	echoWait = 2 * time.Second
	// maxEchoes limits what is stored: more than is sent within echoWait.
	maxEchoes = 512
)

// echoes stores what was sent, since a message to the group comes back to the sender's own
// sockets. Nothing else identifies it: other programs on this host send from the same address and
// port. Each copy is dropped once, so that the same message of another program is still heard. On
// other links, which may be the same wire, every copy is dropped.
type echoes struct {
	seed maphash.Seed
	list []echo
}

type echo struct {
	sum    uint64
	link   int
	family Family
	until  time.Time
	back   bool // it has come back on its own link
}

func (e *echoes) sum(packet []byte) uint64 {
	if e.seed == (maphash.Seed{}) {
		e.seed = maphash.MakeSeed()
	}
	return maphash.Bytes(e.seed, packet)
}

func (e *echoes) add(now time.Time, link int, f Family, packet []byte) {
	e.expire(now)
	if len(e.list) == maxEchoes {
		e.list = e.list[1:]
	}
	e.list = append(e.list, echo{sum: e.sum(packet), link: link, family: f, until: now.Add(echoWait)})
}

// drop reports whether a packet is the copy of one of our own.
func (e *echoes) drop(now time.Time, link int, f Family, packet []byte) bool {
	e.expire(now)
	sum := e.sum(packet)
	for i := range e.list {
		x := &e.list[i]
		if x.sum != sum {
			continue
		}
		if x.link != link {
			return true
		}
		if x.family == f && !x.back {
			x.back = true
			return true
		}
	}
	return false
}

func (e *echoes) expire(now time.Time) {
	n := 0
	for n < len(e.list) && !e.list[n].until.After(now) {
		n++
	}
	e.list = e.list[n:]
}
