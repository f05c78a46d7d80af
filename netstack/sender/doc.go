// Package sender makes the decisions of a TCP sender: what to send and when. It handles neither
// data nor packets. Its goal is that one stream over a long lossy path reaches the rate of the
// link. gVisor has Reno and CUBIC, which take every loss for congestion, and no interface for
// another congestion control. So this package works below gVisor, between its segments and the
// wire. The other end runs stock TCP.
//
// A [Flow] belongs to one connection. It consists of state machines without clock, goroutines or
// locks; they get the time as an argument:
//
//   - scoreboard: the state of each byte (RFC 2018, RFC 6675). What was selectively
//     acknowledged is kept until it is cumulatively acknowledged, because a receiver may discard
//     it.
//   - lossDetector and timer: loss by time, tail loss probes (RFC 8985, RACK-TLP), the
//     retransmission timeout (RFC 6298), zero-window probes (RFC 9293 §3.8.6.1).
//   - rateSampler, pathModel and controller: BBR version 3 (draft-ietf-ccwg-bbr).
//   - lossJudge: which losses are congestion, and which are the path's own.
//   - bound and rivalry: CUBIC's window (RFC 9438) where losses are congestion.
//   - pacer: when the next packet may leave.
//
// [Turns] shares a peer's path between its flows.
package sender
