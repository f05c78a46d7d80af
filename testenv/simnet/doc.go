// Package simnet is an in-process internet for tests and demonstrations: hosts with
// UDP sockets, links with rate, delay, jitter, loss, reordering and an MTU, NATs with
// every mapping and filtering of RFC 4787, stateful firewalls, and a trace that says
// what became of each datagram. It needs no privileges and opens no real socket.
//
//	host ──link── network ──link── NAT ──link── Public ──link── host
//
// A [Network] is either [Internet.Public], which routes between everything attached to
// it and takes one from the TTL, or the inside of a [NAT], a switch whose way out is
// the NAT. NATs nest. Every attachment is a [Link] of its own with [Conditions] for
// each direction, which may change while traffic flows, as may all else that can go
// wrong: [Link.SetDown], [NAT.Reboot], [NAT.SetAddrs], [Host.SetAddrs].
//
// # Time
//
// The models (NAT, firewall, link arithmetic) take the time as an argument and hold no
// clock. A thin driver runs them against package time: what meets no delay is handed
// over within the writer's call, the rest by one goroutine. Inside testing/synctest
// all of it runs in virtual time.
//
// # Determinism
//
// Chance (loss, jitter, reordering, random ports) depends on [Options.Seed], the name
// of the link or NAT, the flow and the position of the datagram in its flow, and on
// nothing else: however goroutines interleave, the third datagram from A to B meets
// the same fate in every run. (Flows share counters when there are thousands of them on one link.)
//
// # What it is not
//
// There is no TCP. A datagram that a link cuts ([Conditions.Fragment]) stays one in the
// model and only counts as its fragments, in bytes, time and chance of loss. ICMP errors
// take no time, pass every NAT and are told to the socket that sent the datagram
// ([Conn.ICMP]).
package simnet
