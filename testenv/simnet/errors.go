package simnet

import (
	"errors"
	"fmt"
	"syscall"
)

// Errors of sockets and builders, for errors.Is. Those that correspond to a kernel's wrap its
// error number.
var (
	// ErrUnreachable is returned by a write if the host has no address of the destination's
	// family, or no route.
	ErrUnreachable = fmt.Errorf("simnet: no route to the destination: %w", syscall.ENETUNREACH)
	// ErrTooLarge is returned by a write that exceeds the MTU of the host's own link.
	ErrTooLarge = fmt.Errorf("simnet: datagram exceeds the MTU of the link: %w", syscall.EMSGSIZE)
	// ErrPortInUse is returned by ListenUDP.
	ErrPortInUse = fmt.Errorf("simnet: port in use: %w", syscall.EADDRINUSE)
	// ErrAddress reports an address that is invalid in its place, or taken.
	ErrAddress = errors.New("simnet: address cannot be used")
)

// Reason says why a datagram was dropped.
type Reason string

// The reasons.
const (
	DropLoss           Reason = "loss"
	DropLinkDown       Reason = "link down"
	DropQueueFull      Reason = "queue full"
	DropTooLarge       Reason = "larger than MTU"
	DropTTL            Reason = "TTL ran out"
	DropNoRoute        Reason = "no such address"
	DropPortClosed     Reason = "port closed"
	DropReceiveBuffer  Reason = "receive buffer full"
	DropFirewall       Reason = "firewall"
	DropNoMapping      Reason = "NAT has no mapping"
	DropFiltered       Reason = "NAT filters this sender"
	DropStray          Reason = "NAT answered a stray" // and remembers it: see Behaviour.AnswersStrays
	DropHairpin        Reason = "NAT does not hairpin"
	DropNoPort         Reason = "NAT has no free port"
	DropTableFull      Reason = "NAT table full"
	DropForeignSource  Reason = "NAT does not translate this source"
	DropInternetClosed Reason = "internet closed"
)
