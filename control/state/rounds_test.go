//go:build !race

package state

// killRounds is how often the writer is killed.
const killRounds = 1000

// everyStep is the interval of the steps at which a backend fails.
const everyStep = 1
