//go:build !race

package state

// killRounds is how often the writer is killed.
const killRounds = 1000
