package load

import (
	"testing"
	"time"
)

// Data sent to the local listener goes through the tunnel.
func TestLocalListenerAndServiceAreCarried(t *testing.T) {
	for name, spec := range map[string]Spec{
		"streams":     {Streams: 2, Direction: Both},
		"connections": {Load: LoadConnections, Streams: 2},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Duration = 200 * time.Millisecond
			for tries := 0; ; tries++ { // on a busy machine nothing may arrive in that time
				p := newPipes()
				closed := false
				ends, err := Proxied(t.Context(), Ends{Listener: p, Dial: p.dial, Close: func() error { closed = true; return p.Close() }})
				if err != nil {
					t.Fatal(err)
				}
				r, err := Run(t.Context(), spec, ends)
				if err != nil || !closed || r.Bytes == 0 && tries == 100 {
					t.Fatalf("got %d bytes, %v, closed %t", r.Bytes, err, closed)
				}
				if r.Bytes > 0 {
					return
				}
			}
		})
	}
}
