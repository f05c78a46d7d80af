// Package way arranges the findings of status, path and checks in a chain: from this gateway over
// its NAT, the network between, and the peer's NAT or firewall to the peer's gateway, and at both
// ends the services that the other side uses. The chain shows where the connection breaks.
//
// [Of] derives it from documents only. Each node and each direction of an edge has a state, which
// is an outcome as in verdicts. What cannot be known is unknown, and so is everything behind a
// break unless there is evidence about it.
package way

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Kind is the kind of a node.
type Kind string

// Kinds of nodes, in their order on the way.
const (
	Here    Kind = "gateway"  // this gateway
	NAT     Kind = "nat"      // the NAT in front of it
	Router  Kind = "router"   // a router on the way that reports that it rejects packets
	Relay   Kind = "relay"    // a TURN server
	Far     Kind = "peerEdge" // the NAT or firewall in front of the peer
	There   Kind = "peer"     // the peer's gateway
	Service Kind = "service"  // at either end
	Between Kind = "between"  // no node, but the network between two
)

// Way is how this gateway and a peer reach each other.
type Way struct {
	Peer string `json:"peer"`
	// Nodes begin with this gateway and end with the peer's. Edges[i] connects Nodes[i] and
	// Nodes[i+1].
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
	// Services are at the ends: outbound ones are the peer's, inbound ones are this gateway's.
	Services []Node `json:"services"`
	// More are the peer's services in use that have no nodes; nil if there are none.
	More *More `json:"more,omitempty"`
	// Break is what to look at first: the most severe fault or, of several, the one nearest to
	// this gateway. Nil if there is none.
	Break *Break `json:"break,omitempty"`
}

// Node is something that packets pass, or where they end.
type Node struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Direction of a service: outbound or inbound.
	Direction string `json:"direction,omitempty"`
	// Address is its address; for this gateway's NAT, as seen by others; for a service of the peer,
	// where it is listened for here.
	Address string `json:"address,omitempty"`
	// Source is the source of the address, as in candidates.
	Source string      `json:"source,omitempty"`
	State  api.Outcome `json:"state"`
	// Before is the outcome of a service before the way broke, if its state is unknown now.
	Before api.Outcome `json:"before,omitempty"`
	// NAT is the behaviour of this gateway's NAT.
	NAT     *api.NAT `json:"nat,omitempty"`
	Version string   `json:"version,omitempty"`
	// LastHandshake is that with the peer's gateway.
	LastHandshake *time.Time `json:"lastHandshake,omitempty"`
	// Probed: the peer's gateway answers probes, but no handshakes.
	Probed     bool    `json:"probed,omitempty"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	Fault      *Fault  `json:"fault,omitempty"`
}

// More summarizes services that have no node each.
type More struct {
	Services int `json:"services"` // how many
	Failing  int `json:"failing"`  // of these
	// State is the worst of their outcomes.
	State api.Outcome `json:"state"`
}

// Edge connects two nodes.
type Edge struct {
	// Out is the direction to the peer, In the direction from it.
	Out api.Outcome `json:"out"`
	In  api.Outcome `json:"in"`
	// Path has the figures of the path in use, on the edge on which it leaves this side.
	Path  *Path  `json:"path,omitempty"`
	Fault *Fault `json:"fault,omitempty"`
}

// Path has the figures of the path in use; zero means unknown.
type Path struct {
	Kind       string  `json:"kind"` // direct or relay
	Address    string  `json:"address"`
	RTTSeconds float64 `json:"rttSeconds,omitempty"`
	// LossRatio is the share of packets that connections to the peer lose; nil if not measured.
	LossRatio *float64 `json:"lossRatio,omitempty"`
	// MTU is the overlay's, in bytes.
	MTU int `json:"mtu,omitempty"`
	// Before: the figures are from before the way broke.
	Before bool `json:"before,omitempty"`
}

// Fault is a check's finding.
type Fault struct {
	// Check is the check's name in reports; empty for findings of status.
	Check     string      `json:"check,omitempty"`
	Direction string      `json:"direction,omitempty"`
	Outcome   api.Outcome `json:"outcome"`
	// Confidence is that of the verdict.
	Confidence api.Confidence `json:"confidence,omitempty"`
	Code       string         `json:"code,omitempty"`
	// Title says in a few words what the code means, and Cause what was found.
	Title string `json:"title,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Steps, Fix and Command are what to do, as in verdicts.
	Steps   api.Steps `json:"steps,omitempty"`
	Fix     string    `json:"fix,omitempty"`
	Command string    `json:"command,omitempty"`
	// place is where it is, if the code says so.
	place string
}

// Break is a fault and its place on the way, in words.
type Break struct {
	// At is the kind of the node where it is, or Between on an edge. A break that is not at a
	// service is about the tunnel.
	At    Kind   `json:"at"`
	Place string `json:"place"`
	// Located is false if the place is everything where the fault may be.
	Located bool `json:"located"`
	Fault
}

// State returns the worse of an edge's two directions, or of its fault. If neither direction is
// known, the fault is somewhere from here to the peer, and this edge is as unknown as the others.
func (e Edge) State() api.Outcome {
	out := Worse(e.Out, e.In)
	if e.Fault != nil && !e.unknown() {
		out = Worse(e.Fault.Outcome, out)
	}
	return out
}

// located reports whether an edge's fault is known to be on it.
func (e Edge) located() bool {
	return slices.ContainsFunc([]api.Outcome{e.Out, e.In}, func(o api.Outcome) bool { return o == api.Error || o == api.Warning })
}

func (e Edge) unknown() bool { return e.Out == api.Unknown && e.In == api.Unknown }

// whole reports whether packets pass an edge in both directions.
func (e Edge) whole() bool { return passes(e.Out) && passes(e.In) }

// passes reports whether packets pass an edge in a direction.
func passes(o api.Outcome) bool { return o == api.OK || o == api.Warning }

// severity orders outcomes, the worst first.
func severity(o api.Outcome) int {
	order := []api.Outcome{api.Error, api.Warning, api.Unknown, api.Off, api.OK}
	if i := slices.Index(order, o); i >= 0 {
		return i
	}
	return slices.Index(order, api.Unknown)
}

// Worse returns the worse of two outcomes.
func Worse(a, b api.Outcome) api.Outcome {
	if severity(b) < severity(a) {
		return b
	}
	return a
}
