//go:build race

package state

// killRounds is lower under the race detector, which doubles the time and finds nothing here: the
// test is about several processes. `make test-long` runs this package without the detector, with
// all 1,000 rounds.
const killRounds = 24

// everyStep is the interval of the steps at which a backend fails; without the detector all are
// tested.
const everyStep = 4
