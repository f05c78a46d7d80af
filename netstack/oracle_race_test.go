//go:build race

package netstack

// oracleCases is how many packets of each kind a segmenter or joiner is compared over; `make test-long` has all
const oracleCases = 100

// abandonedRounds is how often a handshake is abandoned on each port, while segments come
// as fast as can be; `make test-long` has all
const abandonedRounds = 1
