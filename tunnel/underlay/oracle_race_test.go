//go:build race

package underlay

// oracleSeeds is how many runs admission is compared over; `make test-long` has all
const oracleSeeds = 1

// hostileSeconds is how long a network sends; `make test-long` has all
const hostileSeconds = 6
