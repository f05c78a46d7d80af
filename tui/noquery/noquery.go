// Package noquery keeps libraries from querying the terminal when the program starts.
//
// Bubble Tea v1 queries the background colour in an init function (tea_init.go), before main and in
// every command of the binary. A terminal that does not answer delays them all by 5 s, and a late
// answer ends up on the shell's command line. Nothing here needs the answer: the colours are the
// terminal's own sixteen.
//
// Go initialises packages in the order of their import paths, each as soon as its imports are
// initialised. This package imports only os, so it comes before termenv, which still waits for
// golang.org/x/sys. Lip Gloss and Bubble Tea use termenv, which regards no output as a terminal
// while $CI is set. A test in cmd/postern runs the binary on a terminal and checks that it sends no
// query.
package noquery

import "os"

const variable = "CI"

// set reports whether this package set the variable, not the user.
var set = os.Getenv(variable) == "" && os.Setenv(variable, "noquery") == nil

// Restore restores the environment. Main calls it first.
func Restore() {
	if set {
		_ = os.Unsetenv(variable) // cannot fail for a name that could be set
		set = false
	}
}
