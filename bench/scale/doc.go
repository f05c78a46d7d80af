// Package scale measures one gateway, the hub, with very many peers: what idle peers cost, how
// quickly all of them are back after a restart of the hub, and how a flood of handshake
// initiations affects a transfer.
//
// # Setup
//
// The hub is a separate process, `postern gateway` with a configuration file that lists the
// peers, so its memory and processor time can be measured. Each peer is a complete gateway
// (control/gateway), with its own key, state directory, UDP sockets, network stack, path finder
// and checks. All peers share the measuring process. A new peer that is timed has its own process
// ([Join]), in which a gateway has already been started once. So the traffic between hub and
// peers is that of gateways that are not used: probes, checks, and handshakes when a session
// expires.
//
// Everything uses the loopback interface. All peers have the same source address and different
// ports, as behind one NAT.
//
// # Measurement
//
// The hub's resident memory (mainly RssAnon: allocated memory, without the program file) and
// processor time come from /proc (proc_pid_status(5), proc_pid_stat(5)). Other load on the
// machine makes a run longer without adding to them.
//
// # Files
//
//   - world.go: a hub with its peers
//   - hub.go: the hub's process
//   - fleet.go: the idle peers
//   - idle.go: what idle peers cost
//   - join.go: how long joining takes
//   - storm.go: all peers come back
//   - flood.go: strangers' handshakes beside a transfer
//   - serve.go: a hub that can be profiled
//   - process_linux.go, process_other.go: processor time and memory
//   - report.go: tables and charts
package scale
