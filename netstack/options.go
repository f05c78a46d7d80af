package netstack

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
)

const (
	// DefaultMTU fits a 1500-byte underlay over IPv4 with WireGuard's 60 bytes (IPv4 20, UDP 8,
	// WireGuard 32), and over IPv6 with its 80.
	DefaultMTU = 1420
	// MinMTU is IPv6's (RFC 8200 §5): gVisor sends no IPv6 below it.
	MinMTU = 1280
	// DefaultTCPBuffer bounds a connection's send buffer, and its receive buffer, in bytes, on long
	// paths: a window of 30 MB, 1.2 Gbit/s over 200 ms. More would need a coarser window scale,
	// with steps of more than a segment: see windowFloor.
	DefaultTCPBuffer = 60 << 20
	// minTCPBuffer is the minimum for such a bound: less than a few full segments stalls.
	minTCPBuffer = 64 << 10
	// DefaultMaxPendingTCP is how many connection requests may wait for a decision.
	DefaultMaxPendingTCP = 1024
	// pendingShare is the divisor of MaxPendingTCP for what one peer may have, so that it never
	// keeps the others out.
	pendingShare = 4
	// DefaultTCPMemory is Options.TCPMemory if the process has no memory limit, and the maximum
	// derived from one.
	DefaultTCPMemory = 256 << 20
	// minTCPMemory is the minimum for TCPMemory: some dozens of connections.
	minTCPMemory = 2 << 20
	// memoryFraction is the fraction of the process' memory limit that TCP buffers may take. The
	// rest is for WireGuard's packets in flight, 64 KB each, and for garbage.
	memoryFraction = 4
)

// Options configure a [Stack].
type Options struct {
	// Addresses are the stack's own overlay addresses, IPv6 and IPv4; at least one.
	Addresses []netip.Addr
	// MTU of the overlay in bytes, including the inner IP header; 0 means [DefaultMTU].
	MTU int
	// Unmeasured are the paths whose MTU is not known yet; the zero value means that all have MTU
	// until [Stack.SetPathMTU] is called.
	Unmeasured Unmeasured
	// TCPSendBuffer and TCPReceiveBuffer bound what one connection may buffer each way,
	// in bytes; 0 means [DefaultTCPBuffer].
	TCPSendBuffer, TCPReceiveBuffer int
	// TCPMemory bounds the sum of all connections' send and receive buffers, in bytes; the README
	// says how it is shared. 0 means a quarter of the process' memory limit
	// (runtime/debug.SetMemoryLimit, GOMEMLIMIT) at the time of New, and at most
	// [DefaultTCPMemory].
	TCPMemory int64
	// Owner returns an address that stands for all remote addresses of the same peer: they share a
	// path, turns, and what one peer may take of anything that is bounded. It is called with locks
	// held, and on WireGuard's receiving goroutine, and must not block. If it is nil, each address is
	// a peer.
	Owner func(remote netip.Addr) netip.Addr
	// MaxPendingTCP bounds the requests passed to OnTCP and not decided yet; one peer may have a
	// quarter of it. Further SYNs are dropped. 0 means [DefaultMaxPendingTCP].
	MaxPendingTCP int
	// OnTCP is called with connection requests to ports without a listener, each on its own
	// goroutine, which [Stack.Close] waits for. A request that is undecided when OnTCP returns is
	// refused. If OnTCP is nil, all are refused.
	OnTCP func(*Incoming)
	// OnUDP is called with datagrams to ports without a socket; it must not keep payload. If it
	// returns false, the sender gets an ICMP port unreachable. It is called on WireGuard's
	// receiving goroutine of the peer and must not block. It may be nil.
	OnUDP func(remote, local netip.AddrPort, payload []byte) bool
	// OnUDPRefused is called when remote does not accept what was sent from an own address. It must
	// not block, and may be nil.
	OnUDPRefused func(remote, local netip.AddrPort)
	// OnMisdirected is called with inbound packets that are not for us (a peer trying to reach
	// another one through us), at most once per second and peer. It is called on WireGuard's
	// receiving goroutine and must not block. It may be nil.
	OnMisdirected func(src, dst netip.Addr)
	// Logger is for debugging; nil discards.
	Logger *slog.Logger
}

// withDefaults sets defaults and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if o.MTU == 0 {
		o.MTU = DefaultMTU
	}
	if o.TCPSendBuffer == 0 {
		o.TCPSendBuffer = DefaultTCPBuffer
	}
	if o.TCPReceiveBuffer == 0 {
		o.TCPReceiveBuffer = DefaultTCPBuffer
	}
	if o.TCPMemory == 0 {
		o.TCPMemory = defaultTCPMemory(debug.SetMemoryLimit(-1))
	}
	if o.MaxPendingTCP == 0 {
		o.MaxPendingTCP = DefaultMaxPendingTCP
	}
	if o.Owner == nil {
		o.Owner = func(remote netip.Addr) netip.Addr { return remote }
	}
	if o.Unmeasured.MTU == o.MTU {
		o.Unmeasured = Unmeasured{} // it changes nothing, and need not be looked up for each packet
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(o.Addresses) == 0:
		return o, errors.New("netstack: no address given")
	case o.MTU < MinMTU || o.MTU > gsoMaxSize:
		return o, fmt.Errorf("netstack: MTU %d is outside %d to %d", o.MTU, MinMTU, gsoMaxSize)
	case o.Unmeasured.Peers.IsValid() && (o.Unmeasured.MTU < MinPathMTU || o.Unmeasured.MTU > o.MTU):
		return o, fmt.Errorf("netstack: MTU %d of unmeasured paths is outside %d to %d", o.Unmeasured.MTU, MinPathMTU, o.MTU)
	case o.TCPSendBuffer < minTCPBuffer || o.TCPReceiveBuffer < minTCPBuffer:
		return o, fmt.Errorf("netstack: TCP buffers of %d and %d bytes: the least is %d", o.TCPSendBuffer, o.TCPReceiveBuffer, minTCPBuffer)
	case o.TCPMemory < minTCPMemory:
		return o, fmt.Errorf("netstack: %d bytes for all TCP buffers: the least is %d", o.TCPMemory, minTCPMemory)
	case o.MaxPendingTCP < 0:
		return o, fmt.Errorf("netstack: at most %d pending connections makes no sense", o.MaxPendingTCP)
	}
	seen := make(map[netip.Addr]bool, len(o.Addresses))
	for _, a := range o.Addresses {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || seen[a] {
			return o, fmt.Errorf("netstack: %q cannot be an address of the stack, or is given twice", a)
		}
		seen[a] = true
	}
	return o, nil
}

// defaultTCPMemory derives TCPMemory from the process' memory limit in bytes, math.MaxInt64 if
// none.
func defaultTCPMemory(limit int64) int64 {
	return min(max(limit/memoryFraction, minTCPMemory), DefaultTCPMemory)
}
