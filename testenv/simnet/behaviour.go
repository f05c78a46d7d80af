package simnet

import (
	"fmt"
	"time"
)

// Dependence is what a NAT's mapping or filtering depends on (RFC 4787 §4.1 and §5).
type Dependence uint8

// The dependences. For mapping: which datagrams of one inside endpoint leave from the same
// outside port. For filtering: who may send to that port, once the inside endpoint has sent
// something.
const (
	EndpointIndependent     Dependence = iota // all; anyone
	AddressDependent                          // those to one address; an address that it sent to
	AddressAndPortDependent                   // those to one address and port; an address and port that it sent to
)

// String returns the term of RFC 4787.
func (d Dependence) String() string {
	switch d {
	case EndpointIndependent:
		return "endpoint-independent"
	case AddressDependent:
		return "address-dependent"
	case AddressAndPortDependent:
		return "address-and-port-dependent"
	}
	return "unknown"
}

// PortAllocation is how a NAT chooses outside ports (RFC 4787 §4.2).
type PortAllocation uint8

// The port allocations.
const (
	PreservePorts   PortAllocation = iota // the inside port if free, else a random one
	RandomPorts                           // a random port for each mapping
	SequentialPorts                       // the next port for each mapping
)

// Behaviour is how a NAT maps and filters. The zero value is a full cone NAT with Linux's
// timeouts; the functions below return the usual kinds.
type Behaviour struct {
	Mapping   Dependence
	Filtering Dependence
	Ports     PortAllocation
	// PortMin and PortMax bound ports other than the inside port; 0 means 1024 and 65535.
	PortMin, PortMax uint16
	// Overload lets several inside endpoints share an outside port if they send to different
	// destinations ("port overloading", RFC 4787 §4.2.1). It requires a mapping that depends on
	// the destination. Linux's conntrack does this.
	Overload bool
	// AnswersStrays simulates a Linux router that does not drop unsolicited datagrams in its
	// input chain: it replies port unreachable and keeps a conntrack entry for Unreplied, which
	// every further stray renews. While that entry exists, datagrams of an inside endpoint to the
	// stray's source cannot leave from the port that the stray was sent to, and get another: the
	// NAT is poisoned for that pair.
	AnswersStrays bool
	// Hairpin lets inside hosts reach each other by their outside addresses; each sees the
	// other's outside address and port (RFC 4787 §6). Without it such datagrams are dropped.
	Hairpin bool
	// Unreplied is the lifetime of a mapping without a reply, Timeout the lifetime after one; 0
	// means 30 s and 120 s, as in Linux.
	Unreplied, Timeout time.Duration
	// OutboundRefreshOnly means that inbound datagrams do not refresh a mapping, as RFC 4787 §4.3
	// allows.
	OutboundRefreshOnly bool
	// MaxMappings bounds the table, including strays; 0 means 65536.
	MaxMappings int
}

// Defaults of [Behaviour]: nf_conntrack_udp_timeout and …_udp_timeout_stream.
const (
	defaultUnreplied   = 30 * time.Second
	defaultTimeout     = 120 * time.Second
	defaultMaxMappings = 65536
	firstPort          = 1024
)

// FullCone maps and filters endpoint-independently.
func FullCone() Behaviour { return Behaviour{} }

// AddressRestricted maps endpoint-independently and filters by address.
func AddressRestricted() Behaviour { return Behaviour{Filtering: AddressDependent} }

// PortRestricted maps endpoint-independently and filters by address and port.
func PortRestricted() Behaviour { return Behaviour{Filtering: AddressAndPortDependent} }

// PortChanging maps endpoint-independently to a random port of 20000 to 29999 and
// filters by address and port.
func PortChanging() Behaviour {
	return Behaviour{Filtering: AddressAndPortDependent, Ports: RandomPorts, PortMin: 20000, PortMax: 29999}
}

// Symmetric uses a random port for every destination.
func Symmetric() Behaviour {
	return Behaviour{Mapping: AddressAndPortDependent, Filtering: AddressAndPortDependent, Ports: RandomPorts}
}

// Conntrack is nftables' `masquerade` behind an input chain that drops. Each flow has its own
// mapping, but keeps its port if possible. So it looks port-restricted until two inside hosts use
// the same port for one destination.
func Conntrack() Behaviour {
	return Behaviour{Mapping: AddressAndPortDependent, Filtering: AddressAndPortDependent, Overload: true}
}

// Poisonable is [Conntrack] behind an input chain that accepts.
func Poisonable() Behaviour {
	b := Conntrack()
	b.AnswersStrays = true
	return b
}

func (b Behaviour) withDefaults() (Behaviour, error) {
	if b.Mapping > AddressAndPortDependent || b.Filtering > AddressAndPortDependent || b.Ports > SequentialPorts {
		return b, fmt.Errorf("simnet: NAT behaviour %+v has a value that does not exist", b)
	}
	if b.Overload && b.Mapping == EndpointIndependent {
		return b, fmt.Errorf("simnet: NAT behaviour: port overloading needs a mapping that depends on the destination")
	}
	if b.Unreplied < 0 || b.Timeout < 0 || b.MaxMappings < 0 {
		return b, fmt.Errorf("simnet: NAT behaviour %+v has a negative value", b)
	}
	if b.PortMin == 0 {
		b.PortMin = firstPort
	}
	if b.PortMax == 0 {
		b.PortMax = 65535
	}
	if b.PortMin > b.PortMax {
		return b, fmt.Errorf("simnet: NAT port range %d to %d is empty", b.PortMin, b.PortMax)
	}
	if b.Unreplied == 0 {
		b.Unreplied = defaultUnreplied
	}
	if b.Timeout == 0 {
		b.Timeout = defaultTimeout
	}
	if b.MaxMappings == 0 {
		b.MaxMappings = defaultMaxMappings
	}
	return b, nil
}
