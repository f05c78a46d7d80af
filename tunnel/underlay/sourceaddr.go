package underlay

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// spokenKept bounds the stored remote addresses: two generations of this many entries of about
	// 600 bytes. Only addresses whose requests are answered get in. With fewer entries than peers,
	// each probe from a peer would mean a search through all peers.
	spokenKept = 2048
	// spokenDoubt is how many requests in a row may go unanswered, and for how long, until the
	// system chooses the source address again: the current one may have lost its route. A path is
	// probed up to every 300 ms and may take more than a second to answer; the time is that after
	// which it is suspect.
	spokenDoubt    = 3
	spokenDoubtFor = 3500 * time.Millisecond
	// spokenAsked is how many requests are stored: those of spokenDoubtFor.
	spokenAsked = 16
)

// Types of STUN messages (RFC 8489 §5): a binding request, and the first byte of its answers.
const (
	stunBindingRequest = 0x0001
	stunAnswerByte     = 0x01
)

// sharable is an endpoint that several goroutines may use, and clear, concurrently.
type sharable interface {
	conn.Endpoint
	sharable()
}

// transactionID identifies a STUN transaction.
type transactionID [12]byte

func transactionOf(p []byte) (tx transactionID) {
	copy(tx[:], p[8:stunHeaderSize])
	return tx
}

// spoken knows which of our addresses a remote address sends to. On a host with several addresses
// the system may choose another one, and then nothing reaches a peer whose NAT admits only
// packets from addresses that the peer has sent to. So an answer leaves from the address to which
// its request came. Only authentic requests are answered. From then on everything to that remote
// address leaves from there, until requests from there go unanswered. A peer that forges
// another's source address can thus change the address we use for it, but only while nothing is
// known about that remote address.
type spoken struct {
	now func() time.Time
	mu  sync.Mutex // guards what follows
	// handled are the requests being handled.
	handled    map[transactionID]conn.Endpoint
	young, old map[netip.AddrPort]*speaking
}

// speaking is what is known about one remote address.
type speaking struct {
	ep conn.Endpoint // has our address
	// asked are the latest pending requests: those sent to it since it was last heard, the first at
	// since.
	asked   [spokenAsked]transactionID
	pending int
	since   time.Time
}

func (s *spoken) init() {
	s.now = time.Now
	s.handled = make(map[transactionID]conn.Endpoint)
	s.young = make(map[netip.AddrPort]*speaking)
}

// find returns what is known about a remote address, nil for nothing.
func (s *spoken) find(a netip.AddrPort) *speaking {
	if e := s.young[a]; e != nil {
		return e
	}
	e := s.old[a]
	if e != nil {
		s.keep(a, e)
	}
	return e
}

func (s *spoken) keep(a netip.AddrPort, e *speaking) {
	if len(s.young) >= spokenKept {
		s.young, s.old = make(map[netip.AddrPort]*speaking), s.young
	}
	s.young[a] = e
}

func (s *spoken) drop(a netip.AddrPort) {
	delete(s.young, a)
	delete(s.old, a)
}

// endpoint returns the endpoint with the right source address, nil for the system's choice.
func (s *spoken) endpoint(a netip.AddrPort) conn.Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(a); e != nil && e.ep.SrcIP().IsValid() {
		return e.ep
	}
	return nil
}

// received notes a STUN message about to be handled; call done afterwards.
func (s *spoken) received(p []byte, from conn.Endpoint) (done func()) {
	if _, ok := from.(sharable); !ok || !from.SrcIP().IsValid() {
		return func() {}
	}
	tx := transactionOf(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p[0] == stunAnswerByte {
		if e := s.find(addrOf(from)); e != nil && e.wasAsked(tx) {
			e.pending = 0
		}
		return func() {}
	}
	if int(p[0])<<8|int(p[1]) != stunBindingRequest {
		return func() {}
	}
	s.handled[tx] = from
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.handled, tx)
	}
}

func (e *speaking) wasAsked(tx transactionID) bool {
	for _, asked := range e.asked[:min(e.pending, spokenAsked)] {
		if asked == tx {
			return true
		}
	}
	return false
}

// answering returns the endpoint for an answer to a request being handled, nil for any other
// message. changed reports whether our address differs from the one that the remote address sent
// to before. A source address is kept while answers to requests from it arrive: a remote that
// sends to two of our addresses can be answered from either.
func (s *spoken) answering(p []byte, to netip.AddrPort) (ep conn.Endpoint, changed bool) {
	if len(p) < stunHeaderSize || p[0] != stunAnswerByte {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ep = s.handled[transactionOf(p)]
	if ep == nil || addrOf(ep) != to {
		return nil, false
	}
	e := s.find(to)
	switch {
	case e == nil || !e.ep.SrcIP().IsValid():
		s.keep(to, &speaking{ep: ep})
		return ep, true
	case e.ep.SrcIP() == ep.SrcIP():
		e.pending = 0
	}
	return ep, false
}

// asking counts a request. If the earlier ones went unanswered, the endpoint is dropped and
// returned.
func (s *spoken) asking(p []byte, to netip.AddrPort) (lost conn.Endpoint) {
	if len(p) < stunHeaderSize || p[0] == stunAnswerByte {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now := s.find(to), s.now()
	switch {
	case e == nil:
		return nil
	case e.pending == 0:
		e.since = now
	case e.pending >= spokenDoubt && now.Sub(e.since) >= spokenDoubtFor:
		s.drop(to)
		return e.ep
	}
	e.asked[e.pending%spokenAsked] = transactionOf(p)
	e.pending++
	return nil
}

// handSTUN passes on a STUN message that arrived at the socket.
func (b *Bind) handSTUN(p []byte, from conn.Endpoint) {
	done := b.spoken.received(p, from)
	defer done()
	b.onSTUN(p, peer.Path{Remote: addrOf(from)})
}

// endpointOfProbe returns the endpoint, with source address, for a probe.
func (b *Bind) endpointOfProbe(p []byte, to peer.Path, o SendOptions) conn.Endpoint {
	if to.Via != "" {
		return b.endpointOf(to)
	}
	if ep, changed := b.spoken.answering(p, to.Remote); ep != nil {
		if changed {
			b.setSource(to.Remote)
		}
		return ep
	}
	if o == (SendOptions{}) { // a probe with a low TTL, or perhaps too long, shows nothing
		if lost := b.spoken.asking(p, to.Remote); lost != nil {
			b.clearSource(lost)
		}
	}
	return b.endpointOf(to)
}

// setSource makes everything to a remote address leave from the address it sends to.
func (b *Bind) setSource(to netip.AddrPort) {
	path := peer.Path{Remote: to}
	ep := b.endpointOf(path)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.candidates {
		f.setSource(path, ep)
	}
}

// clearSource leaves the source address to the system again.
func (b *Bind) clearSource(lost conn.Endpoint) {
	src := lost.SrcIP()
	lost.ClearSrc()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.candidates {
		f.clearSource(pathOf(lost), src)
	}
}

// setSource uses another endpoint for a path of the peer.
func (f *fanOut) setSource(p peer.Path, ep conn.Endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	has := func(old conn.Endpoint) bool { return pathOf(old) == p }
	if !slices.ContainsFunc(*f.targets.Load(), has) && (f.selected == nil || !has(f.selected)) {
		return // as for nearly all peers, of which there may be a thousand
	}
	targets := append([]conn.Endpoint(nil), *f.targets.Load()...)
	for i, old := range targets {
		if pathOf(old) == p {
			targets[i] = ep
		}
	}
	f.targets.Store(&targets)
	if f.selected != nil && pathOf(f.selected) == p {
		f.selected = ep
	}
	f.routeLocked()
}

// clearSource forgets the source address that a handshake taught.
func (f *fanOut) clearSource(p peer.Path, src netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.learned != nil && pathOf(f.learned) == p && f.learned.SrcIP() == src {
		f.learned.ClearSrc()
	}
}
