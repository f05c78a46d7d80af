//go:build !race

package underlay

// oracleSeeds is how many runs admission is compared over
const oracleSeeds = 8

// hostileSeconds is how long a network sends
const hostileSeconds = 30
