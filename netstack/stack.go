package netstack

import (
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	// timeWait is how long a closed connection's ports stay reserved. gVisor's 60 s would pile up
	// thousands of endpoints behind a busy service; a packet does not live for seconds in a tunnel,
	// and sequence numbers are random (RFC 6528).
	timeWait = 15 * time.Second
	// minRTO is the minimum retransmission timeout. Linux and gVisor use 200 ms. Half of it halves
	// the cost of a loss that leaves too few packets in flight for duplicate acknowledgements, and
	// is still well above the 40 ms by which Linux delays its own.
	minRTO = 100 * time.Millisecond
	// maxRTO is the maximum. RFC 6298 §2.4 wants at least 60 s, for networks that collapse under
	// retransmissions. In a tunnel the outer path is the congested one, and an outage ends when
	// another path has been found. A flow then continues within 2 s, and not at the next doubling:
	// 6.3 s or 12.7 s after the loss were seen.
	maxRTO = 2 * time.Second
	// maxRetries is how often a segment is retransmitted before the connection is given up. RFC
	// 1122 §4.2.3.5 asks for at least 100 s; doubling from 100 ms up to 2 s, 150 retries take about
	// 5 minutes. It decides how long an outage may last without breaking a flow.
	maxRetries = 150
	// orphanTimeout is how long a connection that we have closed may make no progress. A peer that
	// acknowledges nothing, or announces no window, would keep its endpoint and unsent data
	// forever, because window probes may be answered forever. A minute is longer than the repair of
	// a path or the restart of a gateway, so that what was written before Close still arrives.
	orphanTimeout = 60 * time.Second
)

const nicID tcpip.NICID = 1

// Stack is a TCP/IP stack with one network card, the WireGuard device. It is safe for concurrent
// use.
type Stack struct {
	log   *slog.Logger
	gv    *stack.Stack
	dev   *device
	out   *queue
	opts  Options
	v4    bool // has an address of the family
	v6    bool
	drops drops
	done  chan struct{} // closed when closing begins

	memory  *memory
	pending *pending
	orphan  time.Duration // orphanTimeout; immutable
	seed    maphash.Seed  // for hashes of peers and flows; immutable
	// fragmentID identifies the fragments of one datagram.
	fragmentID atomic.Uint32
	long       time.Duration // longRTT; immutable

	beginOnce, closeOnce sync.Once
	mu                   sync.Mutex
	closed               bool           // under mu
	calls                sync.WaitGroup // OnTCP calls and handshakes; added to under mu while open
}

// New returns a stack. Nothing flows until its Device is read and written.
func New(o Options) (*Stack, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Stack{
		log: o.Logger, opts: o, done: make(chan struct{}), out: newQueue(),
		memory: newMemory(o), pending: newPending(o), orphan: orphanTimeout, long: longRTT, seed: maphash.MakeSeed(),
	}
	s.out.owner = func(pkt *stack.PacketBuffer) uint8 {
		return uint8(maphash.Comparable(s.seed, o.Owner(destination(pkt))))
	}
	l := &link{mtu: uint32(o.MTU), out: s.out, drops: &s.drops}
	s.dev = newDevice(l, o)
	s.dev.close = s.beginClose
	s.fragmentID.Store(rand.Uint32())
	s.gv = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv6.NewProtocol, ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocolCUBIC, udp.NewProtocol, icmp.NewProtocol6, icmp.NewProtocol4},
		HandleLocal:        true,
	})
	if err := s.configure(l); err != nil {
		s.gv.Destroy()
		return nil, err
	}
	return s, nil
}

// configure sets options, creates the card and its addresses, and handles SYNs.
func (s *Stack) configure(l *link) error {
	if err := s.configureTCP(); err != nil {
		return err
	}
	if err := s.gv.CreateNIC(nicID, l); err != nil {
		return wrap("create network card", err)
	}
	for _, a := range s.opts.Addresses {
		addr := tcpip.ProtocolAddress{Protocol: protocolOf(a), AddressWithPrefix: toAddress(a).WithPrefix()}
		if err := s.gv.AddProtocolAddress(nicID, addr, stack.AddressProperties{}); err != nil {
			return wrap("add address "+a.String(), err)
		}
		if a.Is4() {
			s.v4 = true
		} else {
			s.v6 = true
		}
	}
	if s.v6 {
		s.gv.AddRoute(tcpip.Route{Destination: header.IPv6EmptySubnet, NIC: nicID})
	}
	if s.v4 {
		s.gv.AddRoute(tcpip.Route{Destination: header.IPv4EmptySubnet, NIC: nicID})
	}
	forwarder := tcp.NewForwarder(s.gv, leastReceive, s.opts.MaxPendingTCP, s.onRequest)
	s.gv.SetTransportProtocolHandler(tcp.ProtocolNumber, func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		return s.admit(id, pkt, forwarder.HandlePacket)
	})
	if s.opts.OnUDP != nil {
		s.gv.SetTransportProtocolHandler(udp.ProtocolNumber, s.onDatagram)
	}
	return nil
}

// configureTCP sets what the README lists under "TCP", with the measurements behind it.
func (s *Stack) configureTCP() error {
	var (
		sack     = tcpip.TCPSACKEnabled(true)
		recovery = tcpip.TCPRecovery(0) // RACK off
		rto      = tcpip.TCPMinRTOOption(minRTO)
		rtoMax   = tcpip.TCPMaxRTOOption(maxRTO)
		// gVisor then announces a scale for the largest window. It never tunes: that takes calls of
		// ModerateRecvBuf, which rightsizing.go replaces.
		moderate = tcpip.TCPModerateReceiveBufferOption(true)
		wait     = tcpip.TCPTimeWaitTimeoutOption(timeWait)
		reuse    = tcpip.TCPTimeWaitReuseGlobal
		retries  = tcpip.TCPMaxRetriesOption(maxRetries)
		send     = tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: leastSend, Max: s.opts.TCPSendBuffer}
		receive  = tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: leastReceive, Max: s.opts.TCPReceiveBuffer}
	)
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &recovery, &rto, &rtoMax, &moderate, &wait, &reuse, &retries, &send, &receive} {
		if err := s.gv.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return wrap(fmt.Sprintf("set TCP option %T", o), err)
		}
	}
	return nil
}

// Device returns the stack's network card, for WireGuard to read and write. Closing it starts
// closing the stack; only [Stack.Close] waits for the end.
func (s *Stack) Device() tun.Device { return s.dev }

// Done returns a channel that is closed when the stack starts closing.
func (s *Stack) Done() <-chan struct{} { return s.done }

// Close aborts all connections (their peers get a reset if the device is still read), wakes
// everything that waits, and returns when the stack has no goroutines left, OnTCP calls included:
// do not hold a lock that one of them needs. It may be called more than once; later calls wait for
// the first.
func (s *Stack) Close() error {
	s.beginClose()
	s.closeOnce.Do(func() {
		s.calls.Wait()
		s.gv.Destroy() // again, for endpoints that OnTCP calls have created meanwhile; this waits
	})
	return nil
}

// beginClose is the part of Close that does not wait.
func (s *Stack) beginClose() {
	s.beginOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		close(s.done)
		s.out.stopWaiting() // otherwise aborting would wait for endpoints that wait for room
		s.gv.Close()
		s.out.close()
		close(s.dev.events)
	})
}

// begin admits a call that Close must wait for; it returns false if the stack is closing.
func (s *Stack) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// protocolOf returns the network protocol of an address.
func protocolOf(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

func toAddress(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

// toFull converts an address and port to gVisor's form. The unspecified address becomes "any".
func toFull(a netip.AddrPort) tcpip.FullAddress {
	full := tcpip.FullAddress{NIC: nicID, Port: a.Port()}
	if !a.Addr().IsUnspecified() {
		full.Addr = toAddress(a.Addr())
	}
	return full
}

func fromFull(f tcpip.FullAddress) netip.AddrPort {
	a, _ := netip.AddrFromSlice(f.Addr.AsSlice())
	return netip.AddrPortFrom(a, f.Port)
}

// has reports whether the stack has an address of a's family.
func (s *Stack) has(a netip.Addr) bool {
	if a.Is4() {
		return s.v4
	}
	return a.Is6() && !a.Is4In6() && s.v6
}
