package main

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/peers/remotedialer/load"
)

func TestEndsBearLoads(t *testing.T) {
	for _, spec := range []load.Spec{
		{Load: load.LoadStreams, Streams: 2, Direction: load.Both},
		{Load: load.LoadConnections},
		{Load: load.LoadRequests, Size: 1000},
	} {
		t.Run(spec.Load, func(t *testing.T) {
			// On a busy machine a longer window may be needed for something to arrive.
			for spec.Duration = 100 * time.Millisecond; ; spec.Duration *= 4 {
				ends, err := newEnds(t.Context(), spec)
				if err != nil {
					t.Fatal(err)
				}
				r, err := load.Run(t.Context(), spec, ends)
				if err != nil {
					t.Fatal(err)
				}
				if r.Bytes > 0 {
					return
				}
				if spec.Duration > time.Minute {
					t.Fatalf("nothing arrived in %s", spec.Duration)
				}
			}
		})
	}
}
