//go:build race

package state

// killRounds is less under the race detector, which doubles the time: what this is
// about happens between processes. `make test` also runs this package without the
// detector, all 1,000 rounds.
const killRounds = 100
