package probe

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Peer is a gateway with which probes are exchanged.
type Peer struct {
	Key peer.PublicKey
	// PresharedKey is the tunnel's; the zero value means none.
	PresharedKey peer.PresharedKey
}

// RequestOptions are the options of a request.
type RequestOptions struct {
	// PathID is the sender's number of the path. The peer receives it.
	PathID uint16
	// Size pads the packet to so many bytes of UDP payload, to measure what the path carries. It
	// is rounded up to a multiple of 4, at most [stunwire.MaxSize]; 0 = no padding.
	Size int
	// Flags are sent to the peer. This package does not use them.
	Flags uint8
}

// Prober makes requests, answers those of peers and checks their answers. It is safe for
// concurrent use.
type Prober struct {
	own    peer.PrivateKey
	bootID uint64

	setting sync.Mutex // serializes SetPeers
	round   uint64     // counts its calls; guarded by setting

	mu      sync.Mutex
	random  io.Reader
	floor   uint64 // the least counter of a new peer: it may be one that was removed
	peers   map[peer.PublicKey]*peerState
	former  []*peerState    // former peers, latest last; their requests are refused with an answer
	byID    map[keyID]*keys // that peers' requests may use
	pending map[stunwire.TxID]*transaction
}

// peerState is the state of a peer, guarded by the prober's lock except for immutable fields.
type peerState struct {
	Peer            // immutable
	schedule        // immutable
	round    uint64 // the last set of peers that includes it; guarded by setting
	in       incoming
	out      outgoing
}

// New returns a prober with the gateway's own key. The boot id must be higher than in any earlier
// run, or peers refuse its requests as replays. Transaction IDs are read from random; nil = the
// system's.
func New(own peer.PrivateKey, bootID uint64, random io.Reader) (*Prober, error) {
	if own.IsZero() {
		return nil, fmt.Errorf("make prober: %w: no private key", ErrKey)
	}
	if random == nil {
		random = rand.Reader
	}
	return &Prober{
		own: own, bootID: bootID, random: random,
		peers:   make(map[peer.PublicKey]*peerState),
		byID:    make(map[keyID]*keys),
		pending: make(map[stunwire.TxID]*transaction),
	}, nil
}

// Request returns a request to a peer. It is for one datagram: of two copies, the peer answers
// only the first.
func (p *Prober) Request(k peer.PublicKey, o RequestOptions) (packet []byte, tx stunwire.TxID, err error) {
	if o.Size < 0 || o.Size > stunwire.MaxSize {
		return nil, tx, fmt.Errorf("%w: %d bytes, at most %d", ErrSize, o.Size, stunwire.MaxSize)
	}
	m, t, err := p.begin(k, o)
	if err != nil {
		return nil, tx, err
	}
	packet, err = stunwire.Encode(m, t.keys.request[:])
	if err != nil {
		return nil, tx, fmt.Errorf("probe %s: %w", k, err)
	}
	return packet, m.TxID, nil
}

// begin opens a transaction and returns its request.
func (p *Prober) begin(k peer.PublicKey, o RequestOptions) (*stunwire.Message, *transaction, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.peers[k]
	if s == nil {
		return nil, nil, fmt.Errorf("probe %s: %w", k, ErrUnknownPeer)
	}
	var tx stunwire.TxID
	if _, err := io.ReadFull(p.random, tx[:]); err != nil {
		return nil, nil, fmt.Errorf("probe %s: draw transaction ID: %w", k, err)
	}
	if s.out.counter == maxCounter {
		return nil, nil, fmt.Errorf("probe %s: %w", k, errors.New("the counter has run out; a restart of the gateway begins again"))
	}
	s.out.counter++
	s.out.advance(s.schedule, p.bootID)
	t := &transaction{s, s.out.choose(), s.out.generation, o.PathID, o.Flags}
	p.remember(tx, t)
	a := attribute{
		flags: o.Flags, pathID: o.PathID, generation: t.generation,
		counter: s.out.counter, boot: p.bootID,
	}
	return &stunwire.Message{
		Class: stunwire.Request, TxID: tx, Username: string(t.keys.id[:]), Probe: a.encode(),
		NoFingerprint: true, PadTo: o.Size,
	}, t, nil
}

// remember stores a transaction in place of its peer's oldest. The lock is held.
func (p *Prober) remember(tx stunwire.TxID, t *transaction) {
	o := &t.peer.out
	p.forget(o.pending[o.next], t.peer)
	o.pending[o.next] = tx
	o.next = (o.next + 1) % maxPending
	p.pending[tx] = t
}

// forget ends a transaction of a peer, if it is still open. The lock is held.
func (p *Prober) forget(tx stunwire.TxID, s *peerState) {
	if t := p.pending[tx]; t != nil && t.peer == s {
		delete(p.pending, tx)
	}
}

// Handle handles a STUN message from an address. It returns false if the message is not ours,
// such as a STUN server's answer: if it has neither a peer's key id nor the ID of one of our
// transactions. That takes one lookup and no allocation.
func (p *Prober) Handle(packet []byte, from netip.AddrPort) (Result, bool) {
	if username, ok := stunwire.PeekRequest(packet); ok && len(username) == keyIDSize {
		p.mu.Lock()
		k := p.byID[keyID(username)]
		p.mu.Unlock()
		if k != nil {
			return p.request(packet, from, k), true
		}
		return Result{}, false
	}
	if tx, ok := stunwire.PeekSuccess(packet); ok {
		p.mu.Lock()
		t := p.pending[tx]
		p.mu.Unlock()
		if t != nil {
			return p.response(packet, tx, t), true
		}
	}
	if tx, ok := stunwire.PeekError(packet); ok {
		p.mu.Lock()
		t := p.pending[tx]
		p.mu.Unlock()
		if t != nil {
			return p.refused(packet, tx, t), true
		}
	}
	return Result{}, false
}

// Rotate changes the key ids of requests to all peers, so that an observer cannot link them to
// earlier ones. Call it when our own network has changed. A peer that has not acknowledged the
// current key id gets the next one when it does.
func (p *Prober) Rotate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.peers {
		s.out.rotate = true
	}
}
