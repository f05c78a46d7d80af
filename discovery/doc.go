// Package discovery finds out where a gateway can be reached and how it reaches its peers. Its
// [Agent] gathers candidates and determines the behaviour of the NAT in front of the gateway; its
// [Pathfinder] finds and keeps a path to every peer.
//
// # Candidates
//
// A candidate is an underlay address and the source it was learned from. They are listed best
// source first, each address once:
//
//   - advertised: what the operator configured, as is. Names are resolved, and again
//     every minute.
//   - service: what the gateway's cluster says leads to it ([Agent.SetServiceEndpoints]):
//     load balancers, node ports. Names are resolved likewise.
//   - host: the addresses of this machine's interfaces with the gateway's port, without
//     loopback, link-local, multicast and overlay addresses, without those of interfaces
//     that a container network or tunnel made ([InterfaceAddrs]), and without the ranges
//     of pods and Services ([Options].Exclude) and the addresses of a pod ([Options].Inside).
//   - stun: server-reflexive addresses, as STUN servers see the gateway's own socket, be it at
//     the address of a pod.
//   - portmap: the port that the router maps to the gateway ([Options].PortMapper), held
//     against what STUN servers see.
//   - relay: what TURN servers have allocated ([Options].Relays).
//
// What a peer announces is dialled only if [Dialable] allows it.
//
// # STUN
//
// Requests leave from the gateway's socket ([Options].Send), since another socket has another
// mapping. A request is sent at 0, 300, 900 and 2100 ms and given up at 3 s: the doubling of RFC
// 8489 §6.2.1 in the time that an operator waits for a ticket. An answer counts only if it comes
// from the queried address and matches the outstanding transaction. A server that answered is
// queried again after 20 to 25 s, which also keeps the mapping of a NAT that forgets after 30 s
// (Linux, for unreplied UDP).
//
// # NAT
//
// The mapping is classified in the terms of RFC 4787 §4.1, from the answers of servers at different
// addresses: none if a server sees the host's own address and port; endpoint-independent if two
// servers see the same; endpoint-dependent if they see different ones (plain STUN servers cannot
// tell address-dependent from address-and-port-dependent); unknown with fewer than two answers. If
// a server offers the tests of RFC 5780, package behaviour runs them once after gathering and again
// when the NAT may have changed; they also find the filtering. [Hints] say what all that means for
// peering.
//
// # Paths
//
// A [Pathfinder] drives one [path.Machine] per peer over one [probe.Prober]. Events (arriving
// probes, handshakes, silence, messages from the peer's path finder, changed addresses) go to the
// machines as they come. [Pathfinder.Run] polls the machine that is due first and does what it
// says: send probes, route, start a handshake, tell the peer, permit addresses at the relays.
//
// # Structure
//
// The gatherer is a state machine without clock, socket or goroutine: events and the time go in,
// actions and the next deadline come out. The Agent drives it, as the Pathfinder drives those of
// package path. Both hold no lock while they send, resolve or call back.
package discovery
