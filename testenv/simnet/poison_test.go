package simnet

import (
	"net/netip"
	"testing"
	"time"
)

// How a NAT is poisoned on Linux, as observed: the router replies to an unsolicited datagram and
// keeps a conntrack entry. Because of that entry, the inside host's own datagram leaves from
// another port.
func TestAPoisonedNAT(t *testing.T) {
	const s = time.Second
	kept := netip.AddrPortFrom(wan, 51820)
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	stray := func(t *testing.T, n *translator, d time.Duration) {
		t.Helper()
		if _, reason := n.inbound(at(d), remote1, kept); reason != DropStray {
			t.Fatalf("a stray at %v: got %q, want %q", d, reason, DropStray)
		}
	}
	for name, b := range map[string]Behaviour{
		"conntrack":            Poisonable(),
		"endpoint-independent": {Filtering: AddressAndPortDependent, AnswersStrays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("a stray first moves the mapping", func(t *testing.T) {
				n := newModel(t, b)
				stray(t, n, 0)
				moved := out(t, n, at(s), inside1, remote1)
				if moved == kept {
					t.Fatal("the mapping kept its port")
				}
				want := kept // only this flow is moved, unless all share one mapping
				if b.Mapping == EndpointIndependent {
					want = moved
				}
				if got := out(t, n, at(s), inside1, otherAddr); got != want {
					t.Errorf("to another destination: from %v, want %v", got, want)
				}
				if got := out(t, n, at(2*s), inside1, remote1); got != moved {
					t.Errorf("the second datagram leaves from %v, want %v again", got, moved)
				}
				if !admits(t, n, at(2*s), remote1, moved, inside1) {
					t.Error("an answer to the moved port does not get in")
				}
				stray(t, n, 3*s) // the peer still sends to the old port
			})
			t.Run("a mapping that is there already moves for this flow alone", func(t *testing.T) {
				n := newModel(t, b)
				out(t, n, epoch, inside1, otherAddr)
				stray(t, n, 0)
				if got := out(t, n, epoch, inside1, remote1); got == kept {
					t.Error("the poisoned flow kept its port")
				}
				if got := out(t, n, epoch, inside1, otherAddr); got != kept {
					t.Errorf("the other flow moved to %v", got)
				}
			})
			t.Run("retries keep it poisoned, silence heals", func(t *testing.T) {
				n := newModel(t, b)
				for d := time.Duration(0); d < 300*s; d += 5 * s {
					stray(t, n, d)
					if got := out(t, n, at(d), inside1, remote1); got == kept {
						t.Fatalf("healed at %v in spite of retries", d)
					}
				}
				if got := out(t, n, at(295*s+30*s), inside1, remote1); got != kept {
					t.Errorf("after 30 s of silence: from %v, want %v", got, kept)
				}
			})
			t.Run("an opener first avoids it", func(t *testing.T) {
				n := newModel(t, b)
				out(t, n, epoch, inside1, remote1)
				if !admits(t, n, at(s), remote1, kept, inside1) {
					t.Error("the peer's datagram does not get in")
				}
				if got := out(t, n, at(s), inside1, remote1); got != kept {
					t.Errorf("leaves from %v, want %v", got, kept)
				}
			})
		})
	}
	t.Run("a router that drops strays is not poisoned", func(t *testing.T) {
		n := newModel(t, Conntrack())
		if _, reason := n.inbound(epoch, remote1, kept); reason != DropNoMapping {
			t.Errorf("got %q, want %q", reason, DropNoMapping)
		}
		if got := out(t, n, epoch, inside1, remote1); got != kept {
			t.Errorf("leaves from %v, want %v", got, kept)
		}
	})
}
