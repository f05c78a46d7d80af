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

// Peer is a gateway to exchange probes with.
type Peer struct {
	Key peer.PublicKey
	// PresharedKey is that of the tunnel; the zero value means none.
	PresharedKey peer.PresharedKey
}

// RequestOptions vary a request.
type RequestOptions struct {
	// PathID is the sender's own number of the path, told to the peer.
	PathID uint16
	// Size pads the packet to so many bytes of UDP payload, to learn what the path
	// carries: rounded up to a multiple of 4, at most [stunwire.MaxSize]; 0 = no padding.
	Size int
	// Flags are told to the peer. They have no meaning here.
	Flags uint8
}

// Prober makes requests, answers those of peers and checks their answers. It is safe
// for concurrent use.
type Prober struct {
	own    peer.PrivateKey
	bootID uint64

	setting sync.Mutex // serializes SetPeers
	wish    uint64     // counts its calls; guarded by setting

	mu      sync.Mutex
	random  io.Reader
	floor   uint64 // no peer that is new gets a counter below: it may be one that was removed
	peers   map[peer.PublicKey]*peerState
	gone    []*peerState    // who were peers, the last one last; their requests are told so
	byID    map[keyID]*keys // that peers' requests may use
	pending map[stunwire.TxID]*transaction
}

// peerState is what is kept of a peer, under the prober's lock except for what never changes.
type peerState struct {
	Peer            // never changes
	schedule        // never changes
	wished   uint64 // the last wish that it is part of; guarded by setting
	in       incoming
	out      outgoing
}

// New makes a prober of the gateway's own key. The boot id has to be higher than in any
// earlier life of the gateway, or peers take its requests for replays. Transaction IDs
// come from random; nil = the system's randomness.
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

// Request makes a request to a peer. Each is for one datagram: of two copies, the peer
// answers the first.
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

// begin opens a transaction and says what its request is.
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

// remember keeps a transaction in place of the oldest of its peer. It needs the lock.
func (p *Prober) remember(tx stunwire.TxID, t *transaction) {
	o := &t.peer.out
	p.forget(o.pending[o.next], t.peer)
	o.pending[o.next] = tx
	o.next = (o.next + 1) % maxPending
	p.pending[tx] = t
}

// forget ends a transaction of a peer, if it is still open. It needs the lock.
func (p *Prober) forget(tx stunwire.TxID, s *peerState) {
	if t := p.pending[tx]; t != nil && t.peer == s {
		delete(p.pending, tx)
	}
}

// Handle takes a STUN message that came from an address. It is false when the message
// is not ours: neither under a peer's key id nor of a transaction of ours, as a STUN
// server's answer is not. That is found out by one look-up, without allocating.
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

// Rotate moves the requests to every peer on to the next key id, so that an observer
// cannot link them with those before. Call it when our own network changed. A peer that
// has not acknowledged the key id in use gets the next one when it does.
func (p *Prober) Rotate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.peers {
		s.out.rotate = true
	}
}
