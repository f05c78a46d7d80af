//go:build race

package netstack

// oracleCases is how many packets of each kind a segmenter or joiner is compared over; `make test-long` has all
const oracleCases = 200
