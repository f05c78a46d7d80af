//go:build race

package netstack

// transferSize under the race detector, which makes everything about ten times slower.
const transferSize = 16 << 20
