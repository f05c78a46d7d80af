//go:build race

package screen

// walks is the number of random walks through the views; `make test-long` runs all.
const walks = 3
