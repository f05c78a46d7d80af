// Package simnet is an in-process internet for tests and demonstrations: hosts with UDP sockets,
// links with rate, delay, jitter, loss, reordering and an MTU, NATs with every mapping and
// filtering of RFC 4787, stateful firewalls, and a trace that says what happened to each
// datagram. It needs no privileges and opens no real socket.
//
//	host ──link── network ──link── NAT ──link── Public ──link── host
//
// A [Network] is either [Internet.Public], which routes between everything attached to it and
// decrements the TTL, or the inside of a [NAT], a switch with the NAT as its gateway. NATs can be
// nested. Every attachment is a separate [Link] with [Conditions] for each direction. Conditions
// may change while traffic flows. Other faults can be simulated by [Link.SetDown], [NAT.Reboot],
// [NAT.SetAddrs] and [Host.SetAddrs].
//
// # Time
//
// The models (NAT, firewall, link arithmetic) take the time as an argument and have no clock. A
// thin driver runs them with package time: datagrams without delay are delivered within the
// writer's call, others by a single goroutine. Inside testing/synctest everything runs in virtual
// time.
//
// # Determinism
//
// Random decisions (loss, jitter, reordering, random ports) only depend on [Options.Seed], the
// name of the link or NAT, the flow and the position of the datagram in its flow. So the third
// datagram from A to B has the same fate in every run, whatever the order of goroutines. (If
// there are thousands of flows on one link, some share counters.)
//
// # Limitations
//
// There is no TCP. A datagram that a link fragments ([Conditions.Fragment]) remains one datagram
// in the model and only counts as its fragments, in bytes, time and probability of loss. ICMP
// errors take no time, pass every NAT and are delivered to the socket that sent the datagram
// ([Conn.ICMP]).
package simnet
