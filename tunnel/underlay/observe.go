package underlay

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// othersKept is how many sources that are no path of a peer are remembered.
	othersKept = 16
	// knownKept bounds the paths of peers that are remembered: of each kind 512 initiations
	// take 120 KB, and only peers that dial take any.
	knownKept = 512
)

// Observations are facts that only the socket knows. They are for diagnosis: nothing here
// depends on them, and whoever can forge a source address can forge most of them.
type Observations struct {
	// Initiations are the last that came, one of each source: each path of a peer (by
	// address and port, all other ports of the address together), and the last 16 other
	// addresses. Those that the device was not given, as they are for another public key
	// than ours or too many, are kept beside these in the same way; and so is the last
	// that the device has answered of each managed peer, or else of each source: nobody
	// but the peer can have made that one. The last that came is the last here.
	Initiations []InitiationSeen
	// Responses are kept in the same way, if they answer something that we sent; of those
	// that answer a managed peer's last initiation the last, wherever it came from.
	Responses []ResponseSeen
	// Unreachable is what did not arrive, one of each destination, kept in the same way. Only
	// our own socket on Linux is told of ICMP errors.
	Unreachable []Unreachable
	// ReceiveBuffer and SendBuffer are the socket buffers' sizes in bytes that the system
	// granted, by the measure of Options (Linux books twice as much, for its overhead). 0
	// if not known. Of two sockets it is the smaller one's.
	ReceiveBuffer, SendBuffer int
	// SocketDrops counts the datagrams that came while the receive buffer was full, or
	// had a wrong checksum, since the Bind was made.
	SocketDrops uint64
}

// InitiationSeen is a handshake initiation that came, genuine or not.
type InitiationSeen struct {
	At   time.Time
	From netip.AddrPort // beyond the relay, if it came over one
	// Stranger is whether no peer was known to be at the address when it came.
	Stranger bool
	Data     [sizeInitiation]byte
}

// ResponseSeen is a handshake response that came, genuine or not.
type ResponseSeen struct {
	At   time.Time
	From netip.AddrPort
	// Peer is the ID of the managed peer whose last initiation it answers, by the random
	// index in it; "" for all others. Asked is when that was sent.
	Peer  string
	Asked time.Time
	Data  [sizeResponse]byte
}

// Observations gives what has been seen since the Bind was made.
func (b *Bind) Observations() Observations {
	var o Observations
	b.observed.read(&o)
	o.ReceiveBuffer, o.SendBuffer, o.SocketDrops = b.Socket()
	return o
}

// Socket is what Observations say of the socket, without what was seen.
func (b *Bind) Socket() (receiveBuffer, sendBuffer int, drops uint64) {
	if s, ok := b.inner.(interface {
		socketState() (receive, send int, drops uint64)
	}); ok {
		return s.socketState()
	}
	return 0, 0, 0
}

// observed is what was seen. Its functions are called for handshakes and for errors, not
// for data; they allocate only for a path of a peer that was not heard before.
//
// The locks are taken in this order:
//
//	Bind.mu ─▶ use of a socket ─▶ observed.mu
//
// Bind.Close holds Bind.mu while it waits for those that use the socket to leave it, and
// whoever uses it may come upon ICMP errors, which are noted here. So nobody may wait for
// Bind.mu while holding observed.mu: the book of paths is fetched before.
type observed struct {
	paths *pathBook

	mu sync.Mutex
	// book is the newest that was fetched, nil before the first.
	book *madeBook

	initiations recent[initiationSeen]
	// refused are those that the device was not given, most of them for another key than
	// ours, as any scanner's. With a forged source they come from a peer's path.
	refused recent[initiationSeen]
	// genuine are those that the device has answered.
	genuine     recent[initiationSeen]
	responses   recent[responseSeen]
	unreachable recent[icmpError]
}

type initiationSeen struct {
	data     [sizeInitiation]byte
	stranger bool
}

type responseSeen struct {
	data  [sizeResponse]byte
	peer  string
	asked time.Time
}

// lock takes the mutex, after it has fetched what paths the peers have now.
func (o *observed) lock() {
	book := o.paths.book()
	o.mu.Lock()
	if o.book == nil || o.book.changes < book.changes {
		o.book = book
	}
}

// knowsLocked reports whether an address is a path of a peer's; with port 0, whether any
// of its ports is.
func (o *observed) knowsLocked(a netip.AddrPort) bool {
	if o.book == nil {
		return false
	}
	_, ok := o.book.remotes[a]
	return ok
}

// placeLocked is where something from the address is kept.
func (o *observed) placeLocked(from netip.AddrPort) (at place, known bool) {
	if o.knowsLocked(from) {
		return place{addr: from}, true
	}
	at = place{addr: anyPort(from)}
	return at, o.knowsLocked(at.addr)
}

// initiationCame notes an initiation, and whether the device is given it.
func (o *observed) initiationCame(p []byte, from peer.Path, given bool, now time.Time) {
	o.lock()
	defer o.mu.Unlock()
	at, known := o.placeLocked(from.Remote)
	in := &o.initiations
	if !given {
		in = &o.refused
	}
	s := in.slot(at, known)
	s.at, s.addr, s.value.stranger = now, from.Remote, !known
	copy(s.value.data[:], p)
}

// initiationAnswered notes that the device answers the initiation that came from there
// with the index: it moves to a place where none that is forged can follow. id is the
// managed peer's whose it is, "" for any other.
func (o *observed) initiationAnswered(index uint32, from peer.Path, id string) {
	o.lock()
	defer o.mu.Unlock()
	at, known := o.placeLocked(from.Remote)
	came := o.initiations.find(at, known)
	if came == nil || came.at.IsZero() || binary.LittleEndian.Uint32(came.value.data[4:]) != index { // sender_index
		return // Another has taken its place since, if only a copy made for that.
	}
	if id != "" {
		at, known = place{peer: id}, true
	}
	s := o.genuine.slot(at, known)
	s.at, s.addr, s.value = came.at, came.addr, came.value
	came.at = time.Time{}
}

// responseCame notes a response. id is the peer's whose initiation it answers, if any, and
// asked is when that was sent. Who knows the index of an initiation has read it: such a
// response is kept as that peer's, which has one place however many sources it comes from,
// and none without takes it.
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
		to.Initiations = append(to.Initiations, InitiationSeen{s.at, s.addr, s.value.stranger, s.value.data})
	}
	for _, s := range sorted(&o.responses) {
		to.Responses = append(to.Responses, ResponseSeen{s.at, s.addr, s.value.peer, s.value.asked, s.value.data})
	}
	to.Unreachable = o.unreachableLocked()
}

// place is what has one value: an address, with port 0 for all others of its ports
// together, or a managed peer.
type place struct {
	addr netip.AddrPort
	peer string // its ID
}

// recent are the last values of some places. Those that are known have a slot of their
// own; all others share a few, so that a flood of them does not wash the known ones out.
type recent[T any] struct {
	known  map[place]*seen[T]
	others [othersKept]seen[T]
}

type seen[T any] struct {
	at    time.Time // zero: nothing, or no longer
	place place
	addr  netip.AddrPort
	value T
}

// slot is the place's, with its last value still in it, or an empty one that was taken
// from the one that has been quiet the longest.
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

// find is the place's slot, nil if it has none.
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

// sorted are the values there are, the last one last.
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
