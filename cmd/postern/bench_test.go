package main

import "testing"

func TestAPeeringIsMeasuredInThreeRoundsUnlessToldOtherwise(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags benchFlags
		given string
		want  int
	}{
		{"nothing said", benchFlags{peer: "cloud", runs: benchRuns}, "", 3},
		{"as many as without --peer", benchFlags{peer: "cloud", runs: benchRuns}, "runs", benchRuns},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.flags.forPeer(func(flag string) bool { return flag == c.given }); err != nil {
				t.Fatal(err)
			}
			if c.flags.runs != c.want {
				t.Errorf("got %d rounds, want %d", c.flags.runs, c.want)
			}
		})
	}
}
