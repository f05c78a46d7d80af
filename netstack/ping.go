package netstack

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// maxPingPayload keeps an echo request within one IP packet of the maximum size.
const maxPingPayload = gsoMaxSize - ipv6HeaderLen - header.ICMPv6EchoMinimumSize

// Ping sends one ICMP or ICMPv6 echo request (RFC 792, RFC 4443 §4.1) with payload bytes
// of random data and waits for its reply: same address, identifier, sequence number and
// data. It returns the round-trip time. There is no timeout but ctx's.
func (s *Stack) Ping(ctx context.Context, to netip.Addr, payload int) (time.Duration, error) {
	if payload < 0 || payload > maxPingPayload {
		return 0, fmt.Errorf("netstack: ping %v: payload of %d bytes is outside 0 to %d", to, payload, maxPingPayload)
	}
	if !s.has(to) {
		return 0, fmt.Errorf("netstack: ping %v: %w", to, ErrNoAddress)
	}
	if !s.begin() {
		return 0, fmt.Errorf("netstack: ping %v: %w", to, net.ErrClosed)
	}
	defer s.calls.Done()
	rtt, err := s.ping(ctx, to, payload)
	if err != nil {
		return 0, fmt.Errorf("netstack: ping %v: %w", to, err)
	}
	return rtt, nil
}

func (s *Stack) ping(ctx context.Context, to netip.Addr, payload int) (time.Duration, error) {
	transport, request := icmp.ProtocolNumber6, byte(header.ICMPv6EchoRequest)
	if to.Is4() {
		transport, request = icmp.ProtocolNumber4, byte(header.ICMPv4Echo)
	}
	var wq waiter.Queue
	ep, terr := s.gv.NewEndpoint(transport, protocolOf(to), &wq)
	if terr != nil {
		return 0, sysError(terr)
	}
	defer ep.Close()
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	// Connecting picks a free identifier and makes gVisor deliver only replies from there.
	if terr := ep.Connect(toFull(netip.AddrPortFrom(to, 0))); terr != nil {
		return 0, sysError(terr)
	}

	// The two echo formats are alike: type, code, checksum, identifier, sequence number, data.
	// gVisor fills in the checksum and the identifier.
	message := make([]byte, header.ICMPv6EchoMinimumSize+payload)
	message[0] = request
	if _, err := rand.Read(message[echoSequence:]); err != nil {
		return 0, err
	}
	start := time.Now()
	if _, terr := ep.Write(bytes.NewReader(message), tcpip.WriteOptions{}); terr != nil {
		return 0, sysError(terr)
	}
	reply := new(bytes.Buffer)
	for {
		select {
		case <-ready:
		case <-ctx.Done():
			return 0, noReply(ctx)
		case <-s.done:
			return 0, net.ErrClosed
		}
		for {
			reply.Reset()
			_, terr := ep.Read(reply, tcpip.ReadOptions{})
			if wouldBlock(terr) {
				break
			}
			if terr != nil {
				return 0, sysError(terr)
			}
			if r := reply.Bytes(); len(r) == len(message) && bytes.Equal(r[echoSequence:], message[echoSequence:]) {
				return time.Since(start), nil
			}
		}
	}
}

// echoSequence is the offset of an echo message's sequence number; its data follow.
const echoSequence = 6

// noReply returns the error of a ping whose ctx has ended.
func noReply(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no echo reply: %w", ctx.Err())
	}
	return ctx.Err()
}
