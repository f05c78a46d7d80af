package discovery_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/postern-dev/postern/discovery"
)

func TestAnAgentTellsOfChangedServiceEndpoints(t *testing.T) {
	changes := 0
	o := discovery.Options{
		Changed: func() { changes++ },
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("203.0.113.10")}, nil
		},
	}
	inWorld(t, nil, o, func(t *testing.T, w *world) {
		synctest.Wait()
		before := changes
		w.agent.SetServiceEndpoints([]discovery.ServiceEndpoint{{Address: "lb.example.net:51820", From: "LoadBalancer of Service postern"}})
		synctest.Wait()
		want := discovery.Candidate{Addr: netip.MustParseAddrPort("203.0.113.10:51820"), Source: discovery.SourceService}
		if got := w.agent.Candidates(); !slices.Contains(got, want) || changes == before {
			t.Errorf("got %v and %d changes, want %v and to be told", got, changes-before, want)
		}
		before = changes
		w.agent.SetServiceEndpoints(nil)
		synctest.Wait()
		if got := w.agent.Candidates(); slices.Contains(got, want) || changes == before {
			t.Errorf("got %v and %d changes, want it to be gone and to be told", got, changes-before)
		}
	})
}
