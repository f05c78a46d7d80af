package netstack

import "sync/atomic"

// Reasons for dropped packets; they are metric labels, so they never change.
const (
	DropMalformed    = "malformed"      // inbound: neither IPv4 nor IPv6, or cut short
	DropMisdirected  = "misdirected"    // inbound: the destination isn't ours; nothing is forwarded
	DropMulticast    = "multicast"      // inbound: multicast or broadcast, which the overlay has none of
	DropForgedError  = "forged-error"   // inbound: an ICMP error not from where the quoted packet went, or with an MTU below the minimum
	DropSmallMSS     = "small-mss"      // inbound: a SYN that asks for segments below the minimum
	DropMemory       = "memory-limit"   // inbound: a connection beyond the sender's share of Options.TCPMemory
	DropQueueFull    = "queue-full"     // outbound: WireGuard did not take packets fast enough
	DropClosed       = "closed"         // either way: the stack is closing
	DropUnsegmented  = "unsegmented"    // outbound: a segment that could not be cut to the MTU
	DropPending      = "pending-limit"  // inbound: SYN beyond Options.MaxPendingTCP, or the sender's share of it
	DropAcceptQueue  = "accept-queue"   // inbound: SYN or ACK for a listener whose queue is full
	DropInvalid      = "invalid"        // inbound: an IP, TCP or UDP header that makes no sense
	DropUDPNoSocket  = "udp-no-socket"  // inbound: UDP to a port without a socket
	DropUDPQueueFull = "udp-queue-full" // inbound: UDP to a socket that isn't read fast enough
)

// drops counts the packets that this package itself drops.
type drops struct {
	malformed, misdirected, multicast, forgedError, smallMSS, memory, pending, queueFull, closed, unsegmented atomic.Uint64
}

func (d *drops) add(reason string) {
	switch reason {
	case DropMalformed:
		d.malformed.Add(1)
	case DropMisdirected:
		d.misdirected.Add(1)
	case DropMulticast:
		d.multicast.Add(1)
	case DropForgedError:
		d.forgedError.Add(1)
	case DropSmallMSS:
		d.smallMSS.Add(1)
	case DropMemory:
		d.memory.Add(1)
	case DropPending:
		d.pending.Add(1)
	case DropQueueFull:
		d.queueFull.Add(1)
	case DropClosed:
		d.closed.Add(1)
	case DropUnsegmented:
		d.unsegmented.Add(1)
	}
}

// Stats is a snapshot of the stack's counters. All count from the stack's start and never decrease.
type Stats struct {
	// ReceivedPackets and ReceivedBytes came from WireGuard, inner IP headers included.
	ReceivedPackets, ReceivedBytes uint64
	// SentPackets and SentBytes went to WireGuard, inner IP headers included, after cutting.
	SentPackets, SentBytes uint64
	// JoinedPackets is how many of ReceivedPackets were joined to the previous one.
	JoinedPackets uint64

	TCPEstablished uint64 // connections open now (a gauge)
	TCPRetransmits uint64 // segments sent again
	TCPResetsSent  uint64
	TCPTimeouts    uint64 // retransmission timers that expired
	TCPMemory      uint64 // bytes set aside for TCP buffers now (a gauge), of Options.TCPMemory

	// Dropped counts packets by reason. Every reason is always present.
	Dropped map[string]uint64
}

// Stats reads the counters.
func (s *Stack) Stats() Stats {
	g := s.gv.Stats()
	d := &s.drops
	return Stats{
		ReceivedPackets: s.dev.receivedPackets.Load(),
		ReceivedBytes:   s.dev.receivedBytes.Load(),
		SentPackets:     s.dev.sentPackets.Load(),
		SentBytes:       s.dev.sentBytes.Load(),
		JoinedPackets:   s.dev.joinedPackets.Load(),
		TCPEstablished:  g.TCP.CurrentEstablished.Value(),
		TCPRetransmits:  g.TCP.Retransmits.Value() + s.dev.flows.resent.Load(),
		TCPResetsSent:   g.TCP.ResetsSent.Value(),
		TCPTimeouts:     g.TCP.Timeouts.Value(),
		TCPMemory:       uint64(s.memory.usage()),
		Dropped: map[string]uint64{
			DropMalformed:    d.malformed.Load(),
			DropMisdirected:  d.misdirected.Load(),
			DropMulticast:    d.multicast.Load(),
			DropForgedError:  d.forgedError.Load(),
			DropSmallMSS:     d.smallMSS.Load(),
			DropMemory:       d.memory.Load(),
			DropQueueFull:    d.queueFull.Load(),
			DropClosed:       d.closed.Load(),
			DropUnsegmented:  d.unsegmented.Load(),
			DropPending:      d.pending.Load(),
			DropAcceptQueue:  g.TCP.ListenOverflowSynDrop.Value() + g.TCP.ListenOverflowAckDrop.Value(),
			DropInvalid:      g.IP.MalformedPacketsReceived.Value() + g.TCP.InvalidSegmentsReceived.Value() + g.UDP.MalformedPacketsReceived.Value(),
			DropUDPNoSocket:  g.UDP.UnknownPortErrors.Value(),
			DropUDPQueueFull: g.UDP.ReceiveBufferErrors.Value(),
		},
	}
}
