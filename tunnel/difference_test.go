package tunnel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Of any sequence of peer sets, exactly those with a duplicate name or key are refused, and the
// device then has the last accepted set.
func TestAnySetFollowsAnyOther(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed))
	e := startNode(t, newMemory(), newKey(t), cloudAddr)
	var keys []peer.PublicKey
	for range 6 {
		keys = append(keys, newKey(t).Public())
	}
	there := map[peer.PublicKey]peer.Config{}
	refused := 0
	for round := range 400 {
		var set []peer.Config
		for _, c := range there { // most stay
			if r.IntN(4) > 0 {
				set = append(set, c)
			} else if r.IntN(2) > 0 {
				c.Name, c.Managed = fmt.Sprint("peer-", r.IntN(6)), r.IntN(2) > 0
				set = append(set, c)
			}
		}
		for range r.IntN(3) {
			set = append(set, peer.Config{Name: fmt.Sprint("peer-", r.IntN(6)), PublicKey: keys[r.IntN(len(keys))]})
		}
		r.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })

		wished, names := map[peer.PublicKey]peer.Config{}, map[string]bool{}
		for _, c := range set {
			wished[c.PublicKey], names[c.Name] = c, true
		}
		contradicts := len(wished) < len(set) || len(names) < len(set)
		err := e.SetPeers(set)
		if contradicts != errors.Is(err, ErrPeerSet) || err != nil && !contradicts {
			t.Fatalf("round %d: got %v for %v after %v", round, err, set, there)
		}
		if contradicts {
			refused++
		} else {
			there = wished
		}
		has := e.Snapshot().Peers
		state, err := e.state()
		if err != nil {
			t.Fatal(err)
		}
		if len(has) != len(there) || len(state.Peers) != len(there) {
			t.Fatalf("round %d: %d peers and %d of the device, want %v", round, len(has), len(state.Peers), there)
		}
		for k, c := range there {
			if has[k].Name != c.Name {
				t.Fatalf("round %d: %s is %q, want %q", round, k, has[k].Name, c.Name)
			}
		}
	}
	if refused < 50 || refused > 350 {
		t.Errorf("%d of 400 sets were refused, which says little of the others", refused)
	}
}
