// Package probe writes and reads authenticated probes: STUN binding requests between
// gateways and the responses to them.
package probe

import (
	"errors"
	"io"
	"net/netip"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Errors, to be compared with errors.Is.
var (
	// ErrUnknownPeer reports a key that is not among the peers.
	ErrUnknownPeer = errors.New("not a peer")
	// ErrKey reports a key that no probe can be authenticated with.
	ErrKey = errors.New("unusable key")
	// ErrSize reports a size that no probe can have.
	ErrSize = errors.New("probe size out of range")
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
	// Flags are told to the peer.
	Flags uint8
}

// Kind is what [Prober.Handle] made of a packet.
type Kind uint8

// Kinds of results.
const (
	Drop     Kind = iota // refused: nothing may be sent, nothing was learnt
	Request              // an authenticated request: send Reply to where it came from, the way it came
	Response             // an authenticated answer to a request of ours
)

// Result is what a packet that is ours says.
type Result struct {
	Kind   Kind
	Reason Reason // of a Drop
	Peer   peer.PublicKey
	PathID uint16 // of a request: the sender's number; of a response: that of our request
	Flags  uint8  // likewise
	TxID   stunwire.TxID
	// BootID is the sender's, of a request.
	BootID uint64
	// Rebooted says that the request is the first with a higher boot id than before:
	// the peer has restarted, and its sessions are gone.
	Rebooted bool
	// Mapped is the address that the peer saw our request come from, of a response.
	Mapped netip.AddrPort
	// Reply is the response to send, of a request.
	Reply []byte
}

// Reason says why a packet was dropped, for counters and logs.
type Reason string

// Prober makes requests, answers those of peers and checks their answers. It is safe
// for concurrent use.
type Prober struct{}

// New makes a prober of the gateway's own key and boot id; rnd nil = the system's randomness.
func New(own peer.PrivateKey, bootID uint64, rnd io.Reader) (*Prober, error) {
	return &Prober{}, nil
}

// SetPeers replaces the peers, by difference. Its error names the peers that were
// refused; the others are set.
func (p *Prober) SetPeers(peers []Peer) error { return nil }

// Request makes a request to a peer. Each is for one datagram: a repeated one gets no answer.
func (p *Prober) Request(k peer.PublicKey, o RequestOptions) (packet []byte, tx stunwire.TxID, err error) {
	return nil, tx, ErrUnknownPeer
}

// Handle takes a STUN message that came from an address. It is false when the message
// is none of ours, as a STUN server's answer is not.
func (p *Prober) Handle(packet []byte, from netip.AddrPort) (Result, bool) {
	return Result{}, false
}

// Rotate moves the requests to every peer on to the next key id, so that an observer
// cannot link them with those before. Call it when the own network changed.
func (p *Prober) Rotate() {}

// SetBootID tells the boot id that a peer stated inside the tunnel, where nothing can be
// replayed. It counts even if it is lower than what the peer's probes said before.
func (p *Prober) SetBootID(k peer.PublicKey, bootID uint64) {}
