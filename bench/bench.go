// Package bench compares postern with what a user could use instead, and with the limits that
// apply to all of them.
//
// # Method
//
// A [Scenario] is a load ("one TCP stream"), and a [Subject] is what carries it ("postern"). A
// cell is one scenario with one subject. Each run of a cell is a separate process (see package
// load), so its memory and processor time are the subject's alone. Runs are interleaved: each
// round runs every cell once, so that a slower or busier machine affects all cells alike. Every
// other round runs the cells in reverse order, because a run may be affected by the one before
// it. Ratios are therefore taken within a round. Reports show the median, minimum and maximum
// over the rounds. Absolute figures only hold for that machine at that time.
//
// A subject that cannot run stays in the report, with the reason.
//
// # Extending it
//
// A new load is an entry in [Scenarios] and a function in package load. A new subject is an entry
// in [Subjects] and a function in the program that runs it. A new promise is an entry in
// [Requirements]. The tables, JSON and benchstat output need no change.
package bench
