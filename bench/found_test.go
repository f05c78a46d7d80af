package bench

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

// TestPathFindersChooseThePath checks that the benchmark measures path finding: the peers are
// managed, probes select their path, and probes are answered.
func TestPathFindersChooseThePath(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b, err := newFinders(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(a.close(), b.close()); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	defer cancel()
	for _, ends := range [][2]*found{{a, b}, {b, a}} {
		f, k, want := ends[0], ends[1].key.Public(), peer.Direct(ends[1].at())
		if s, ok := f.finder.Snapshot(k); !ok || s.Kind != path.KindDirect || s.Selected != want {
			t.Errorf("selected path: got %+v, want the direct path %v", s, want)
		}
		if got := f.engine.Snapshot().Peers[k].Path; got != want {
			t.Errorf("the tunnel's path: got %v, want %v", got, want)
		}
		if _, over, err := f.finder.Probe(ctx, k); err != nil || over != want {
			t.Errorf("probe: got %v over %v, want an answer over %v", err, over, want)
		}
	}
}
