package sender

import (
	"math/rand/v2"
	"testing"
)

// Flows that always have something to send get equal numbers of bytes, whatever the size of their
// packets.
func TestTurnsShareBytesEvenly(t *testing.T) {
	sizes := map[string]int{"large": 1500, "medium": 700, "small": 60}
	var turns Turns[string]
	for _, flow := range []string{"large", "medium", "small"} {
		turns.Wake(flow)
	}
	sent := make(map[string]int)
	for total := 0; total < 1_000_000; {
		total += turns.Next(func(flow string) int {
			sent[flow] += sizes[flow]
			return sizes[flow]
		})
	}
	for flow, n := range sent {
		if n < 1_000_000/3-2*quantum || n > 1_000_000/3+2*quantum {
			t.Errorf("%s sent %d bytes of 1 MB, want a third", flow, n)
		}
	}
}

// A flow that sends a packet now and then doesn't wait for bulk flows.
func TestTurnsLetSparseFlowsPass(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	var turns Turns[int]
	const bulk = 20
	for flow := range bulk {
		turns.Wake(flow)
	}
	keys := false // has a packet to send
	next := func() (flow int) {
		turns.Next(func(f int) int {
			flow = f
			if f < bulk {
				return 1400
			}
			if !keys {
				return 0
			}
			keys = false
			return 64
		})
		return flow
	}
	for range 1000 {
		for range 5*bulk + rng.IntN(100) {
			if f := next(); f == bulk {
				t.Fatal("the sparse flow sent without a packet")
			}
		}
		keys = true
		turns.Wake(bulk)
		if f := next(); f != bulk {
			t.Fatalf("flow %d came before the one that sends little", f)
		}
	}
}

// However often flows come and go, none waits forever, and one that left isn't called.
func TestTurnsStarveNobody(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 4))
	var turns Turns[int]
	queued := make(map[int]int) // bytes by flow
	waited := make(map[int]int) // packets of others, since a flow last sent or had nothing
	for range 50_000 {
		flow := rng.IntN(30)
		switch rng.IntN(20) {
		case 0:
			turns.Remove(flow)
			delete(queued, flow)
			delete(waited, flow)
		default:
			if rng.IntN(3) == 0 {
				queued[flow] += 1 + rng.IntN(3000)
				turns.Wake(flow)
			}
		}
		sender := -1
		turns.Next(func(f int) int {
			n := min(queued[f], 1400)
			if queued[f] -= n; queued[f] == 0 {
				delete(queued, f)
			}
			if n > 0 {
				sender = f
			}
			return n
		})
		if sender < 0 && len(queued) > 0 {
			t.Fatalf("nobody sends, and %d have something to send", len(queued))
		}
		delete(waited, sender)
		for f := range queued {
			if f == sender {
				continue
			}
			if waited[f]++; waited[f] > 30*30 {
				t.Fatalf("flow %d has waited for %d packets", f, waited[f])
			}
		}
	}
}
