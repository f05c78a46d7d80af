//go:build race

package screen

// walks is how many random walks through the views there are; `make test-long` has all
const walks = 3
