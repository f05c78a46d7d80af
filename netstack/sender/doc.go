// Package sender is a TCP sender's decisions, without its data and packets: what to send
// and when, so that one stream over a long lossy path reaches what the link allows. gVisor
// has Reno and CUBIC, which take every loss for congestion, and no seam for another
// congestion control; this package is made to work below it, on the way from its segments
// to the wire, with stock TCP at the other end.
//
// A [Flow] is one connection's. It is put together of machines that have time as an
// argument, no clock, no goroutine and no lock:
//
//   - scoreboard: what became of each byte (RFC 2018, RFC 6675). What was selectively
//     acknowledged is kept until it is acknowledged for good, because a receiver may
//     discard it.
//   - lossDetector and timer: losses by time, tail loss probes (RFC 8985, RACK-TLP), the
//     retransmission timeout (RFC 6298), probes of a closed window (RFC 9293 §3.8.6.1).
//   - rateSampler, pathModel and controller: BBR version 3 (draft-ietf-ccwg-bbr).
//   - lossJudge: which losses are congestion, and which the path always has.
//   - bound and rivalry: CUBIC's window (RFC 9438) where losses are congestion.
//   - pacer: when the next packet may leave.
//
// [Turns] shares a peer's path between its flows.
package sender
