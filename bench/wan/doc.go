// Package wan puts a path of the internet between the two ends of a benchmark, and
// measures over it: bulk transfers in a grid of round-trip times and losses and over paths
// that do worse, how long a keystroke takes, and how flows share a bottleneck.
//
// # The path
//
// A [Link] is one direction: it loses packets by chance, alone or in bursts, drops what a
// policer doesn't let pass, queues the rest before the transmitter of its rate with a
// bounded drop-tail queue, and delivers half a round trip after that: in order, but for
// packets that fall behind. It is a machine without sockets or clocks: times are arguments,
// and the same arrivals with the same seed give the same losses, packet by packet. So loss
// is a property of the packet's number and not of who is looking.
//
// # The forwarder
//
// [Serve] moves datagrams between two ends over two links, which several tunnels may share.
// It has one UDP socket for each tunnel: each of the first two addresses that speak to it
// is an end, which takes the forwarder for the other one. The end that sends is the one with the
// first large datagram. It runs in a process of its own,
// so that its processor time isn't the ends', and ahead of others where it may (sched(7),
// SCHED_RR), because a late forwarder is a longer path.
//
// Datagrams that the kernel hands over as one (UDP_GRO) are weighed one by one; what is
// due leaves together (UDP_SEGMENT) when it has one size. A delivery is at most half a
// tick early, and usually as much late at most: see tick.
package wan
