package underlay

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// othersKept is how many sources that are no peer's path are stored.
	othersKept = 16
	// knownKept bounds the stored paths of peers: 512 initiations of each kind take 120 KB, and
	// only peers that dial take any.
	knownKept = 512
)

// Observations are facts that only the socket knows. They serve diagnosis: nothing here depends on
// them, and anyone who can forge a source address can forge most of them.
type Observations struct {
	// Initiations are the latest ones, one for each source: each path of a peer (by address and
	// port, with all other ports of the address together), and the last 16 other addresses. Those
	// that the device was not given, because they are for another public key or too many, are
	// stored separately in the same way. So is the last one that the device answered from each
	// managed peer, or otherwise from each source: only the peer can have made it. The list is in
	// order of arrival.
	Initiations []InitiationSeen
	// Responses are stored in the same way, if they answer something that we sent. Of those to a
	// managed peer's last initiation only the latest is kept, whatever its source.
	Responses []ResponseSeen
	// Unreachable are datagrams that were not delivered, one for each destination, stored in the
	// same way. Only our own socket on Linux reports ICMP errors.
	Unreachable []Unreachable
	// ReceiveBuffer and SendBuffer are the socket buffer sizes that the system granted, in the
	// units of Options (Linux books twice as much for overhead). 0 if unknown. With two sockets it
	// is the smaller size.
	ReceiveBuffer, SendBuffer int
	// SocketDrops counts the datagrams that arrived while the receive buffer was full, or had a
	// wrong checksum, since the Bind was created.
	SocketDrops uint64
}

// InitiationSeen is a handshake initiation that arrived, genuine or not.
type InitiationSeen struct {
	At   time.Time
	From netip.AddrPort // beyond the relay, if it came over one
	// Stranger is whether no peer was known at the address when it arrived.
	Stranger bool
	Data     [sizeInitiation]byte
	// Ours is whether it is one of ours that came back, by the random index in it.
	Ours bool
}

// ResponseSeen is a handshake response that arrived, genuine or not.
type ResponseSeen struct {
	At   time.Time
	From netip.AddrPort
	// Peer is the ID of the managed peer whose last initiation it answers, according to the random
	// index in it; "" for others. Asked is when that initiation was sent.
	Peer  string
	Asked time.Time
	Data  [sizeResponse]byte
}

// Observations returns what has been seen since the Bind was created.
func (b *Bind) Observations() Observations {
	var o Observations
	b.observed.read(&o)
	o.ReceiveBuffer, o.SendBuffer, o.SocketDrops = b.Socket()
	return o
}

// Socket returns the part of Observations about the socket.
func (b *Bind) Socket() (receiveBuffer, sendBuffer int, drops uint64) {
	if s, ok := b.inner.(interface {
		socketState() (receive, send int, drops uint64)
	}); ok {
		return s.socketState()
	}
	return 0, 0, 0
}

// observed stores what was seen. It is called for handshakes and errors, not for data; it allocates
// only for a new path of a peer.
//
// Locks are taken in this order:
//
//	Bind.mu ─▶ use of a socket ─▶ observed.mu
//
// Bind.Close holds Bind.mu while it waits for the users of the socket, and a user may run into ICMP
// errors, which are noted here. So nobody may wait for Bind.mu while holding observed.mu: the book
// of paths is fetched before.
type observed struct {
	paths *pathBook

	mu sync.Mutex
	// book is the latest one fetched, nil before the first.
	book *madeBook

	initiations recent[initiationSeen]
	// refused are those that the device was not given, mostly for another key than ours, as from
	// scanners. With a forged source they seem to come from a peer's path.
	refused recent[initiationSeen]
	// genuine are those that the device has answered.
	genuine     recent[initiationSeen]
	responses   recent[responseSeen]
	unreachable recent[icmpError]
	passing     Refusals
	// hasRefused is whether this host has ever refused to send. Until then, successes need no look.
	hasRefused atomic.Bool
}

type initiationSeen struct {
	data     [sizeInitiation]byte
	stranger bool
	ours     bool
}

type responseSeen struct {
	data  [sizeResponse]byte
	peer  string
	asked time.Time
}

// lock locks the mutex after fetching the peers' current paths.
func (o *observed) lock() {
	book := o.paths.book()
	o.mu.Lock()
	if o.book == nil || o.book.changes < book.changes {
		o.book = book
	}
}

// knowsLocked reports whether an address is a peer's path; with port 0, whether any of its ports
// is.
func (o *observed) knowsLocked(a netip.AddrPort) bool {
	if o.book == nil {
		return false
	}
	_, ok := o.book.remotes[a]
	return ok
}

// placeLocked returns where to store something from the address.
func (o *observed) placeLocked(from netip.AddrPort) (at place, known bool) {
	if o.knowsLocked(from) {
		return place{addr: from}, true
	}
	at = place{addr: anyPort(from)}
	return at, o.knowsLocked(at.addr)
}

// initiationCame notes an initiation, whether the device is given it, and whether we sent it.
func (o *observed) initiationCame(p []byte, from peer.Path, given, ours bool, now time.Time) {
	o.lock()
	defer o.mu.Unlock()
	at, known := o.placeLocked(from.Remote)
	in := &o.initiations
	if !given {
		in = &o.refused
	}
	s := in.slot(at, known)
	s.at, s.addr, s.value.stranger, s.value.ours = now, from.Remote, !known, ours
	copy(s.value.data[:], p)
}

// initiationAnswered notes that the device answers the initiation that came from there with the
// index. It moves the initiation to a place that forged ones cannot reach. id is the managed peer
// that sent it, "" for any other.
func (o *observed) initiationAnswered(index uint32, from peer.Path, id string) {
	o.lock()
	defer o.mu.Unlock()
	at, known := o.placeLocked(from.Remote)
	came := o.initiations.find(at, known)
	if came == nil || came.at.IsZero() || binary.LittleEndian.Uint32(came.value.data[4:]) != index { // sender_index
		return // another has replaced it since, perhaps a copy made for that purpose
	}
	if id != "" {
		at, known = place{peer: id}, true
	}
	s := o.genuine.slot(at, known)
	s.at, s.addr, s.value = came.at, came.addr, came.value
	came.at = time.Time{}
}

// responseCame notes a response. id is the peer whose initiation it answers, if any, and asked when
// that was sent. Someone who knows the index of an initiation has read it, so the response is
// stored as that peer's. That is a single place, whatever the sources, and no response without the
// index can take it.
func (o *observed) responseCame(p []byte, from peer.Path, id string, asked, now time.Time) {
	o.lock()
	defer o.mu.Unlock()
	at, known := o.placeLocked(from.Remote)
	if id != "" {
		at, known = place{peer: id}, true
	}
	s := o.responses.slot(at, known)
	s.at, s.addr, s.value.peer, s.value.asked = now, from.Remote, id, asked
	copy(s.value.data[:], p)
}

func (o *observed) read(to *Observations) {
	o.lock()
	defer o.mu.Unlock()
	for _, s := range sorted(&o.initiations, &o.refused, &o.genuine) {
		to.Initiations = append(to.Initiations, InitiationSeen{At: s.at, From: s.addr, Stranger: s.value.stranger, Data: s.value.data, Ours: s.value.ours})
	}
	for _, s := range sorted(&o.responses) {
		to.Responses = append(to.Responses, ResponseSeen{s.at, s.addr, s.value.peer, s.value.asked, s.value.data})
	}
	to.Unreachable = o.unreachableLocked()
}

// place identifies one stored value: an address, with port 0 for all its other ports together, or a
// managed peer.
type place struct {
	addr netip.AddrPort
	peer string // its ID
}

// recent stores the last values of some places. Known places have their own slots; all others share
// a few, so that a flood does not evict the known ones.
type recent[T any] struct {
	known  map[place]*seen[T]
	others [othersKept]seen[T]
}

type seen[T any] struct {
	at    time.Time // zero: none, or no longer valid
	place place
	addr  netip.AddrPort
	value T
}

// slot returns the place's slot with its last value, or an empty one taken from the place that has
// been quiet the longest.
func (r *recent[T]) slot(at place, known bool) *seen[T] {
	if known {
		return r.knownSlot(at)
	}
	oldest := &r.others[0]
	for i := range r.others {
		s := &r.others[i]
		if s.place == at {
			return s
		}
		if s.at.Before(oldest.at) {
			oldest = s
		}
	}
	*oldest = seen[T]{place: at}
	return oldest
}

// find returns the place's slot, nil if it has none.
func (r *recent[T]) find(at place, known bool) *seen[T] {
	if known {
		return r.known[at]
	}
	if i := slices.IndexFunc(r.others[:], func(s seen[T]) bool { return s.place == at }); i >= 0 {
		return &r.others[i]
	}
	return nil
}

func (r *recent[T]) knownSlot(at place) *seen[T] {
	if s := r.known[at]; s != nil {
		return s
	}
	if r.known == nil {
		r.known = make(map[place]*seen[T])
	}
	if len(r.known) >= knownKept {
		var oldest *seen[T]
		for _, s := range r.known {
			if oldest == nil || s.at.Before(oldest.at) {
				oldest = s
			}
		}
		delete(r.known, oldest.place)
	}
	s := &seen[T]{place: at}
	r.known[at] = s
	return s
}

// sorted returns the stored values, oldest first.
func sorted[T any](of ...*recent[T]) []*seen[T] {
	var all []*seen[T]
	for _, r := range of {
		for _, s := range r.known {
			if !s.at.IsZero() {
				all = append(all, s)
			}
		}
		for i := range r.others {
			if !r.others[i].at.IsZero() {
				all = append(all, &r.others[i])
			}
		}
	}
	slices.SortFunc(all, func(a, b *seen[T]) int { return a.at.Compare(b.at) })
	return all
}
