// Package bench measures postern against what a user could pick instead, and against
// what bounds every one of them.
//
// # How it measures
//
// A [Scenario] is a load ("one TCP stream"), a [Subject] is what bears it ("postern"),
// and the two make a cell. A run of a cell is a process of its own (see package load),
// so memory and processor time are the subject's alone. Runs are interleaved: every
// round makes one run of every cell, so that a machine that grows slower or busier does
// so for all alike, and every other round makes them in reverse order, since a run may
// also fare by what ran before it. A ratio is therefore taken within a round,
// and what is reported is the median of the rounds' ratios with the least and the
// greatest; absolute figures are of that machine at that minute and no more.
//
// A subject that cannot run stays in the report, with the reason.
//
// # Growing it
//
// A new load is a line in [Scenarios] and a function in package load; a new subject is
// a line in [Subjects] and a function in the program that holds it; a new promise is a
// line in [Requirements]. Tables, JSON and benchstat output follow from these.
package bench
