// Package path finds, keeps and explains the way to one peer.
//
// A [Machine] is given everything that happens (candidates, answers to probes, messages
// of the peer's machine, handshakes, silence) together with the time, and answers with
// what to do and when to ask again. It holds no clock, no socket and no goroutine.
//
// # Pairs and their states
//
// A pair is a way to send and a remote address ([peer.Path]): the gateway's own socket
// or one of its allocations on a relay, and one of the peer's candidates.
//
//	                  ┌────────────── thaw ───────────────┐
//	                  │                                   ▼
//	(new) ────────► Frozen ◄── punching failed ──── Probing ──── answer ────► Valid
//	   │                                            │    ▲                    │   ▲
//	   └────────────── may be tried ────────────────┼────┘                    │   │
//	                                     no answer  │    │ next try    best   │   │ another
//	                                                ▼    │             of all ▼   │ is better
//	                            Failed ◄─────────── ┴ Failed               Selected
//	                               ▲                                          │
//	                               └──── 10 s ──── Suspect ◄── 3.5 s of unanswered probes
//
// Only an answer to one's own probe proves a pair, or a completed handshake when the peer
// answers no probes at all. Both sides choose for themselves; there is no nomination.
//
// # Rules
//
// The timers are those of the design: see the constants and tables of schedule.go
// (pacing, liveness, retries), choose.go (order and hysteresis), punch.go (NATs on both
// sides) and mtu.go. The package's README has them in one place with their sources.
package path
