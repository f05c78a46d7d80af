//go:build !race

package netstack

// transferSize is how much the transfer tests move, in bytes.
const transferSize = 1 << 30
