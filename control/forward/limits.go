package forward

import (
	"net/netip"
	"runtime/debug"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// Limits bound what may be open at once. Zero values take the defaults.
//
// PeerFlows, HalfOpen and Reserve count inbound and outbound connections of a peer separately, so
// that local clients cannot lock a peer out, nor the other way round. They and PeerRate count
// connections to auth separately from those to all other services. Those of workloads, to services
// of clusters, are counted separately from both, have their own bounds, and take nothing from
// theirs.
type Limits struct {
	// PeerFlows is the maximum number of connections of one peer in one direction.
	PeerFlows int
	// HalfOpen is the maximum number of connections of one peer that are being opened: the upstream
	// is being dialled or the handshake is not complete.
	HalfOpen int
	// Total is the maximum number of connections of the gateway.
	Total int
	// Reserve is how many connections a peer may have in one direction even when Total
	// is reached, so that no peer can take the last place of another.
	Reserve int
	// PeerRate is how many connections per second a peer may open towards us in the long run.
	// PeerBurst is how many it may open at once: by default more than may be open, since after an
	// outage they are all opened again. Further ones are refused before anything is done for them.
	PeerRate, PeerBurst int
	// UDPFlows is the maximum number of flows of datagrams of the gateway, PeerUDPFlows that of one
	// peer in one direction. They are counted separately from connections. InboundUDPFlows is the
	// maximum number of inbound ones, each of which has a socket; one peer may have half of them.
	UDPFlows, PeerUDPFlows, InboundUDPFlows int
	// WorkloadFlows is the maximum number of connections of workloads, PeerWorkloadFlows that of
	// one peer in one direction.
	WorkloadFlows, PeerWorkloadFlows int
	// Buffers is the maximum memory for copying at full speed, in bytes; PeerBuffers is one peer's
	// share of it. Beyond that, copying continues with small buffers. Workloads have half as much
	// in addition.
	Buffers, PeerBuffers int
}

// Defaults: a virtual kubelet with a few hundred pods holds some dozens of watches and
// as many exec and log streams. Two goroutines, two sockets and two small buffers make
// an idle connection cost about 30 KB, so 4096 of them stay near 120 MB.
const (
	defaultPeerFlows = 1024
	defaultHalfOpen  = 128
	defaultTotal     = 4096
	defaultReserve   = 16
	defaultBuffers   = 16 << 20
	// defaultUDPFlows is the maximum number of flows of datagrams if there is memory for them.
	defaultUDPFlows = 100_000
	// udpFlowMemory is what a flow of datagrams costs, in bytes: udpOwnMemory here, and 3 KB for
	// the kernel's socket of an inbound one (BenchmarkUDPFlow).
	udpFlowMemory, udpOwnMemory = 3500, 550
	// udpMemoryFraction and udpFilesFraction are the divisors of the process' memory limit, and of
	// its file descriptors, for what flows of datagrams may take, the latter inbound ones alone.
	udpMemoryFraction, udpFilesFraction = 8, 2
	// udpHalfOpen is how many flows of one peer may wait for a name to be resolved.
	udpHalfOpen = 1024
	// udpPeerRate is how many flows per second a peer may begin in the long run: resolvers use a
	// new port for each query, and a flow costs a fiftieth of a connection.
	udpPeerRate = 2000
	// workloadFlowMemory is what an idle connection costs, in bytes, and workloadMemoryFraction the
	// divisor of the process' memory limit for what those of workloads may take.
	workloadFlowMemory, workloadMemoryFraction = 30 << 10, 4
	// workloadRate is how many times as many connections of workloads a peer may open as of others:
	// each pod there may be a client.
	workloadRate = 10
	// workloadHalfOpen is likewise higher than for others.
	workloadHalfOpen = 512
	// unadmittedClient is how many flows one address may have that are not admitted yet: on one
	// processor, a client that may opens hundreds before the first of them is looked at.
	// unadmittedTotal is the maximum number of such flows, connections and datagrams separately.
	unadmittedClient, unadmittedTotal = 512, 4096
	// unadmittedPart is how many times as many places as an address has must be left for another one of
	// it. It has at most unadmittedClient by that, and less beside others, of which many may be forged.
	unadmittedPart = unadmittedTotal/unadmittedClient - 1
	// clientPart is how many times as many flows a local client may have as are left for all others:
	// three quarters if it is alone.
	clientPart = 3
	// The share is half: one peer alone does not need more (64 streams at full speed),
	// and two cannot starve a third, since small buffers are outside the budget.
	peerBufferShare = 2
)

func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.PeerFlows, defaultPeerFlows)
	set(&l.HalfOpen, defaultHalfOpen)
	set(&l.Total, defaultTotal)
	set(&l.Reserve, defaultReserve)
	set(&l.PeerRate, api.DefaultConnectionsPerSecond)
	set(&l.PeerBurst, l.PeerFlows+l.PeerRate)
	set(&l.UDPFlows, int(min(defaultUDPFlows, debug.SetMemoryLimit(-1)/udpMemoryFraction/udpFlowMemory)))
	set(&l.PeerUDPFlows, (l.UDPFlows+1)/2)
	set(&l.InboundUDPFlows, int(openFiles()/udpFilesFraction))
	set(&l.WorkloadFlows, int(min(defaultTotal, debug.SetMemoryLimit(-1)/workloadMemoryFraction/workloadFlowMemory)))
	set(&l.PeerWorkloadFlows, (l.WorkloadFlows+1)/2)
	set(&l.Buffers, defaultBuffers)
	set(&l.PeerBuffers, l.Buffers/peerBufferShare)
	return l
}

// usage counts the flows of a kind.
type usage struct {
	flows, halfOpen int
}

// account counts the flows of a share, and those of each local client.
type account struct {
	usage
	clients map[netip.Addr]usage
}

// count adds flows of a client, which has no address if it is not told apart.
func (a *account) count(client netip.Addr, flows, halfOpen int) {
	a.flows += flows
	a.halfOpen += halfOpen
	if !client.IsValid() {
		return
	}
	if a.clients == nil {
		a.clients = map[netip.Addr]usage{}
	}
	u := a.clients[client]
	if u = (usage{u.flows + flows, u.halfOpen + halfOpen}); u == (usage{}) {
		delete(a.clients, client)
	} else {
		a.clients[client] = u
	}
}

// bounds are the limits of a kind of flows: for a peer, for a peer's flows that are being opened,
// in total, and what a peer may have even if the total is reached; and how many a peer may begin,
// per second and at once.
type bounds struct {
	peer, halfOpen, total, reserve, rate, burst int
	// part is how many times as many as the peer has must be left in total; 0 is none.
	part int
	// limit is what total is derived from, if an operator should know it.
	limit catalogue.Failure
}

// unadmittedBounds are those of the flows that are not admitted yet.
var unadmittedBounds = bounds{peer: unadmittedClient, halfOpen: unadmittedClient, total: unadmittedTotal, part: unadmittedPart}

func (l Limits) tcp(c class) bounds {
	switch c {
	case workload:
		r := l.PeerRate * workloadRate
		return bounds{l.PeerWorkloadFlows, workloadHalfOpen, l.WorkloadFlows, l.Reserve, r, l.PeerWorkloadFlows + r, 0, ""}
	case unadmitted:
		return unadmittedBounds
	}
	return bounds{l.PeerFlows, l.HalfOpen, l.Total, l.Reserve, l.PeerRate, l.PeerBurst, 0, ""}
}

func (l Limits) udp() bounds {
	return bounds{l.PeerUDPFlows, udpHalfOpen, l.UDPFlows, l.Reserve, udpPeerRate, l.PeerUDPFlows + udpPeerRate, 0, ""}
}

// admit decides whether one more flow of a client fits. The empty reason admits it.
func (b bounds) admit(a *account, client netip.Addr, total int) Reason {
	own, left := a.clients[client], b.total-total
	if a.flows < b.reserve {
		left = max(left, b.reserve-a.flows)
	}
	switch {
	case a.flows >= b.peer:
		return PeerFlowLimit
	case a.halfOpen >= b.halfOpen:
		return PeerHalfOpenLimit
	case left <= 0:
		return TotalFlowLimit
	case a.flows*b.part >= left:
		return PeerFlowLimit
	case own.flows >= clientPart*min(b.peer-a.flows, left), own.halfOpen >= clientPart*(b.halfOpen-a.halfOpen):
		return ClientLimit
	}
	return ""
}
