//go:build !race

package screen

// walks is the number of random walks through the views.
const walks = 10
