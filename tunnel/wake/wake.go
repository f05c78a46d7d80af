// Package wake is how a goroutine that works in turns is asked for another one.
package wake

// Signal is a request for a turn. It holds at most one, so Set never blocks, and many calls before
// the next turn cause only that one. It is received like from any channel.
type Signal chan struct{}

// New returns a Signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set asks for a turn, unless one has been asked for.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
