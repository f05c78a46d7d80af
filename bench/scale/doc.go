// Package scale measures one gateway, the hub, that has very many peers: what idle ones
// cost, how fast all of them are back after the hub was restarted, and what a flood of
// handshake initiations does to a transfer.
//
// # What is real
//
// The hub is a process of its own, `postern gateway` with a configuration file that lists
// the peers, so that its memory and processor time are its alone. Each peer is a whole
// gateway as well (control/gateway), with its own key, state directory, UDP sockets,
// network stack, path finder and checks; all of them share one process, the one that
// measures. A new peer that is timed has a process of its own ([Join]), in which a gateway
// has been started before. What passes between hub and peers is therefore what passes
// between gateways that nobody uses: probes, checks, handshakes when a session is over.
//
// Everything goes over the loopback interface, so all peers have one source address and
// differ by their ports, as behind one NAT.
//
// # What is measured
//
// The hub's resident memory (RssAnon above all: what it has allocated, without the program
// file) and processor time come from /proc (proc_pid_status(5), proc_pid_stat(5)): a busy
// neighbour makes a run longer and costs the hub nothing by that account.
package scale
