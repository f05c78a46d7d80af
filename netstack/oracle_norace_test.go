//go:build !race

package netstack

// oracleCases is how many packets of each kind a segmenter or joiner is compared over
const oracleCases = 2000

// abandonedRounds is how often a handshake is abandoned on each port, while segments come
// as fast as can be
const abandonedRounds = 16
