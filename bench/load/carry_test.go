package load

import (
	"testing"
	"time"
)

// What is sent to the local listener passes the tunnel, and nothing else does.
func TestLocalListenerAndServiceAreCarried(t *testing.T) {
	for name, spec := range map[string]Spec{
		"streams":     {Streams: 2, Direction: Both},
		"connections": {Load: LoadConnections, Streams: 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipes()
			closed := false
			ends, err := Proxied(t.Context(), Ends{Listener: p, Dial: p.dial, Close: func() error { closed = true; return p.Close() }})
			if err != nil {
				t.Fatal(err)
			}
			spec.Duration = 200 * time.Millisecond
			r, err := Run(t.Context(), spec, ends)
			if err != nil || r.Bytes == 0 || !closed {
				t.Errorf("got %d bytes, %v, closed %t", r.Bytes, err, closed)
			}
		})
	}
}
