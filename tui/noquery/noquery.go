// Package noquery keeps libraries from asking the terminal questions when the program
// starts.
//
// Bubble Tea v1 asks for the background colour in an init function of its own
// (tea_init.go), before main and in every command that the binary has. A terminal that
// does not answer stalls them all for 5 s, and the answer of one that answers late ends
// up on the shell's command line. Nothing here needs the answer: colours are the
// terminal's own sixteen.
//
// Go initialises packages in the order of their import paths, each as soon as all that it
// imports is initialised. This package imports nothing but os, so its turn comes while
// termenv, on which Lip Gloss and Bubble Tea stand, still waits for golang.org/x/sys.
// termenv takes no terminal for one while $CI is set. A test in cmd/postern runs the
// binary on a terminal and sees that nothing is asked.
package noquery

import "os"

const variable = "CI"

// set says that the variable is this package's and not the user's.
var set = os.Getenv(variable) == "" && os.Setenv(variable, "noquery") == nil

// Restore restores the environment. Main calls it first.
func Restore() {
	if set {
		_ = os.Unsetenv(variable) // fails for no name that could be set
		set = false
	}
}
