//go:build !race

package netstack

// transferSize is what the transfer tests move, in bytes.
const transferSize = 1 << 30
