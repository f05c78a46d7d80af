//go:build linux && e2e

package peers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// One API server serves all: what needs one of its own comes last.
func TestControllerInARealCluster(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"a peer appears and is shown", testShown},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

func isConnected(o *v1alpha1.Peer) bool { return o.Status.State == "connected" }

func testShown(t *testing.T, w *world) {
	s := w.site(t, "shown").run()
	s.apply(manifest("cloud", keyOf(1), "allow: [auth, apiServer]", "endpoints: ['198.51.100.7:51820']"))
	s.peer("cloud", "it connects", isConnected)
	out := s.kubectl("", "get", "peers", "-n", s.namespace)
	t.Log("\n" + out)
	head, row, _ := strings.Cut(out, "\n")
	if got := strings.Fields(head); fmt.Sprint(got) != "[NAME MODE STATE PATH RTT AUTH API AGE]" {
		t.Errorf("the columns are %v", got)
	}
	if got := strings.Fields(row); len(got) != 8 || fmt.Sprint(got[:7]) != "[cloud InBand connected direct 12ms ok ok]" {
		t.Errorf("the row is %v", got)
	}
	t.Log(s.kubectl("", "describe", "peer", "cloud", "-n", s.namespace))
}
