// Package path finds, keeps and explains the path to one peer.
//
// A [Machine] is given every event (candidates, answers to probes, messages from the peer's
// machine, handshakes, silence) together with the time, and returns what to do and when to poll
// again. It has no clock, socket or goroutine.
//
// # Pairs and their states
//
// A pair is a local way to send and a remote address ([peer.Path]): the gateway's own socket or one
// of its allocations on a relay, and one of the peer's candidates.
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
// Only an answer to our own probe proves a pair, or a completed handshake if the peer answers no
// probes at all. Each side chooses for itself; there is no nomination.
//
// # Rules
//
// For the timers see the constants and tables of schedule.go (pacing, liveness, retries), choose.go
// (order and hysteresis), punch.go (NATs on both sides) and mtu.go. The package's README lists them
// with their sources.
package path
