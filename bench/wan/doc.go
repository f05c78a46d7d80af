// Package wan puts an internet path between the two ends of a benchmark, and measures over it:
// bulk transfers in a grid of round-trip times and losses and over worse paths, the delay of
// keystrokes, and how flows share a bottleneck.
//
// # Path
//
// A [Link] is one direction. It loses packets at random, singly or in bursts, drops what exceeds
// a policer, queues the rest in a bounded drop-tail queue for a transmitter of its rate, and
// delivers half a round trip later: in order, except for packets that fall behind. It uses no
// sockets or clocks: times are arguments, and the same arrivals with the same seed give the same
// losses. So loss only depends on the packet's number, not on the subject.
//
// # Forwarder
//
// [Serve] forwards datagrams between two ends over two links, which several tunnels may share. It
// has one UDP socket for each tunnel. The first two addresses that speak to it are the ends, and
// each takes the forwarder for the other end. The end that sends the first large datagram is the
// sender of the load. The forwarder is a separate process, so its processor time is not counted
// as the ends'. It has real-time priority if permitted (sched(7), SCHED_RR), because a late
// forwarder lengthens the path.
//
// Datagrams that the kernel delivers together (UDP_GRO) are handled singly. Datagrams that are
// due leave together (UDP_SEGMENT) if they have one size. A delivery is at most half a tick
// early, and usually at most as late: see tick.
//
// # Files
//
//   - path.go: what a path is
//   - profiles.go: typical paths
//   - cells.go: scenarios
//   - control.go: kubectl over long paths
//   - require.go: the promises
//   - grid.go: in which order the runs are made
//   - duel.go: two senders on one path
//   - table.go: the report
//   - serve.go: the process that forwards
//   - forwarder_linux.go, forwarder_other.go: its loop
//   - link.go: one direction of a path
//   - fifo.go: its queue
//   - policer.go: its rate limiter
//   - loss.go: which packets are lost
//   - delay.go: jitter and reordering
package wan
