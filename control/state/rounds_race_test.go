//go:build race

package state

// killRounds is less under the race detector, which doubles the time: what this is
// about happens between processes. `make test-long` runs this package without the
// detector, all 1,000 rounds.
const killRounds = 24

// everyStep is the distance of the steps at which a backend fails; without the detector
// each is tried.
const everyStep = 4
