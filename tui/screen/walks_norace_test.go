//go:build !race

package screen

// walks is how many random walks through the views there are
const walks = 10
