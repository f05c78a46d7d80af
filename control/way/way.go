// Package way puts what status, path and checks have found onto one chain: from this gateway over
// its NAT, what lies between and the peer's own NAT or firewall to the peer's gateway, and at
// both ends the services that the other side uses. So it can be seen where the way breaks.
//
// [Of] makes it of documents alone. Each node and each direction of an edge has a state in the
// words of a verdict; what nobody could tell is unknown, and what follows a break is unknown
// unless something was seen that says otherwise.
package way

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Kind is what a node is.
type Kind string

// Kinds of nodes, in their order on the way.
const (
	Here    Kind = "gateway"  // this gateway
	NAT     Kind = "nat"      // the NAT in front of it
	Router  Kind = "router"   // one on the way that says it refuses what is sent
	Relay   Kind = "relay"    // a TURN server
	Far     Kind = "peerEdge" // the NAT or firewall in front of the peer
	There   Kind = "peer"     // the peer's gateway
	Service Kind = "service"  // at either end
	Between Kind = "between"  // no node, but what lies between two
)

// Way is how this gateway and a peer reach each other.
type Way struct {
	Peer string `json:"peer"`
	// Nodes begin with this gateway and end with the peer's. Edges[i] is between Nodes[i] and
	// Nodes[i+1].
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
	// Services are at the ends: outbound those of the peer, inbound those of this gateway.
	Services []Node `json:"services"`
	// Break is what to look at first: of the gravest faults the one nearest to this gateway. Nil where
	// there is none.
	Break *Break `json:"break,omitempty"`
}

// Node is something that packets pass, or where they end.
type Node struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Direction is outbound or inbound, of a service.
	Direction string `json:"direction,omitempty"`
	// Address is where it is reached: of this gateway's NAT as others see it.
	Address string `json:"address,omitempty"`
	// Source is where an address is known from, as candidates have it.
	Source string      `json:"source,omitempty"`
	State  api.Outcome `json:"state"`
	// Before is what was found of a service before the way broke, while its state is not known.
	Before api.Outcome `json:"before,omitempty"`
	// NAT is what this gateway's NAT does.
	NAT     *api.NAT `json:"nat,omitempty"`
	Version string   `json:"version,omitempty"`
	// LastHandshake is with the peer's gateway.
	LastHandshake *time.Time `json:"lastHandshake,omitempty"`
	RTTSeconds    float64    `json:"rttSeconds,omitempty"`
	Fault         *Fault     `json:"fault,omitempty"`
}

// Edge is what lies between two nodes.
type Edge struct {
	// Out is the direction to the peer, In the one from it.
	Out api.Outcome `json:"out"`
	In  api.Outcome `json:"in"`
	// Path is what is known about the way in use, on the edge by which it leaves this side.
	Path  *Path  `json:"path,omitempty"`
	Fault *Fault `json:"fault,omitempty"`
}

// Path is the way in use in figures; zero is unknown.
type Path struct {
	Kind       string  `json:"kind"` // direct or relay
	Address    string  `json:"address"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	// LossRatio is the share of packets that connections to the peer lose; nil where none told.
	LossRatio *float64 `json:"lossRatio,omitempty"`
	// MTU is of the overlay, in bytes.
	MTU int `json:"mtu,omitempty"`
	// Before: the figures are of before the way broke.
	Before bool `json:"before,omitempty"`
}

// Fault is what a check found.
type Fault struct {
	// Check is its name, as reports have it; empty of what status alone tells.
	Check     string      `json:"check,omitempty"`
	Direction string      `json:"direction,omitempty"`
	Outcome   api.Outcome `json:"outcome"`
	// Confidence is as verdicts have it.
	Confidence api.Confidence `json:"confidence,omitempty"`
	Code       string         `json:"code,omitempty"`
	// Title says in a few words what the code means, and Cause what was found.
	Title string `json:"title,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Steps, Fix and Command are what to do, as verdicts have it.
	Steps   api.Steps `json:"steps,omitempty"`
	Fix     string    `json:"fix,omitempty"`
	Command string    `json:"command,omitempty"`
	// place is where it is, if the code tells.
	place string
}

// Break is a fault and where on the way it is, in words.
type Break struct {
	// At is the kind of the node where it is; Between on an edge. What is not at a service is about the
	// tunnel.
	At    Kind   `json:"at"`
	Place string `json:"place"`
	// Located is false of a place that is all of the way on which the fault may be.
	Located bool `json:"located"`
	Fault
}

// State is the worse of an edge's two directions, or its fault's. Where neither direction is
// known, the fault is somewhere from here to the peer, and this edge is as unknown as the others.
func (e Edge) State() api.Outcome {
	out := worse(e.Out, e.In)
	if e.Fault != nil && !e.unknown() {
		out = worse(e.Fault.Outcome, out)
	}
	return out
}

// located reports whether a fault of an edge is known to be on it.
func (e Edge) located() bool {
	return slices.ContainsFunc([]api.Outcome{e.Out, e.In}, func(o api.Outcome) bool { return o == api.Error || o == api.Warning })
}

func (e Edge) unknown() bool { return e.Out == api.Unknown && e.In == api.Unknown }

// whole reports whether something gets over an edge in both directions.
func (e Edge) whole() bool { return passes(e.Out) && passes(e.In) }

// passes reports whether something gets over an edge in a direction.
func passes(o api.Outcome) bool { return o == api.OK || o == api.Warning }

// severity orders outcomes, the worst first.
func severity(o api.Outcome) int {
	order := []api.Outcome{api.Error, api.Warning, api.Unknown, api.Off, api.OK}
	if i := slices.Index(order, o); i >= 0 {
		return i
	}
	return slices.Index(order, api.Unknown)
}

func worse(a, b api.Outcome) api.Outcome {
	if severity(b) < severity(a) {
		return b
	}
	return a
}
