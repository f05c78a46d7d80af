package discovery

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestServiceEndpointsAreCandidatesOfTheirSource(t *testing.T) {
	g := newGatherer(t)
	g.exclude = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	g.setServices([]ServiceEndpoint{
		{"203.0.113.9:51820", "LoadBalancer of Service postern"},
		{"lb.example.net:51820", "LoadBalancer of Service postern"},
		{"10.0.0.5:30820", "NodePort 30820 on node n1 (InternalIP)"},
		{"203.0.113.9:51820", "again"},
		{"127.0.0.1:51820", "LoadBalancer of Service postern"}, // of a cluster on a laptop
		{"10.244.1.7:51820", "externalIPs of Service postern"}, // a pod's address
		{"no address", "LoadBalancer of Service postern"},
	})
	do, _ := g.poll(start)
	if !slices.Equal(do.resolve, []string{"lb.example.net"}) || !slices.Equal(g.pending(), []string{"resolving lb.example.net:51820"}) {
		t.Fatalf("to resolve %q, pending %q", do.resolve, g.pending())
	}
	lb := netip.MustParseAddr("203.0.113.10")
	g.resolved(start, "lb.example.net", []netip.Addr{lb}, nil)

	ap := netip.MustParseAddrPort
	want := []Candidate{
		{Addr: ap("203.0.113.9:51820"), Source: SourceService},
		{Addr: netip.AddrPortFrom(lb, 51820), Source: SourceService},
		{Addr: ap("10.0.0.5:30820"), Source: SourceService},
		{Addr: hostAt, Source: SourceHost},
	}
	s := g.snapshot(nil)
	if !slices.Equal(s.Candidates, want) {
		t.Errorf("got\n%v, want\n%v", s.Candidates, want)
	}
	var out []string
	for _, l := range s.LeftOut {
		out = append(out, l.Addr.String()+" "+l.Source+" "+l.Reason)
	}
	if len(out) != 2 || !strings.Contains(out[0]+out[1], "127.0.0.1 service loopback") || !strings.Contains(out[0]+out[1], "10.244.1.7 service in 10.244.0.0/16") {
		t.Errorf("left out: %q", out)
	}
	if len(s.Problems) != 1 || s.Problems[0].Source != SourceService || s.Problems[0].What != "no address" {
		t.Errorf("problems: %+v", s.Problems)
	}
	if len(s.Services) != 6 || s.Services[1].From != "LoadBalancer of Service postern" || !slices.Equal(s.Services[1].Addrs, []netip.AddrPort{want[1].Addr}) {
		t.Errorf("services: %+v", s.Services)
	}
}

func TestServiceEndpointsThatStayAreNotResolvedAgain(t *testing.T) {
	g := newGatherer(t)
	stays, goes := ServiceEndpoint{"lb.example.net:51820", "LoadBalancer"}, ServiceEndpoint{"203.0.113.9:51820", "LoadBalancer"}
	g.setServices([]ServiceEndpoint{stays, goes})
	g.poll(start)
	g.resolved(start, "lb.example.net", []netip.Addr{public1.Addr()}, nil)

	stays.From = "LoadBalancer, renamed"
	g.setServices([]ServiceEndpoint{stays})
	do, _ := g.poll(start)
	s := g.snapshot(nil)
	if len(do.resolve) != 0 || len(s.Candidates) != 2 || s.Candidates[0].Addr != netip.AddrPortFrom(public1.Addr(), 51820) {
		t.Errorf("to resolve %q, candidates %v", do.resolve, s.Candidates)
	}
	if len(s.Services) != 1 || s.Services[0].From != stays.From {
		t.Errorf("services: %+v", s.Services)
	}

	// A name that is removed and added again is resolved again, even if an answer is on its way.
	g.poll(start.Add(resolveAfter))
	g.setServices(nil)
	g.resolved(start.Add(resolveAfter), "lb.example.net", nil, errors.New("too late"))
	g.setServices([]ServiceEndpoint{stays})
	if do, _ := g.poll(start.Add(resolveAfter)); !slices.Equal(do.resolve, []string{"lb.example.net"}) {
		t.Errorf("to resolve %q", do.resolve)
	}
	g.setServices(nil)
	if s := g.snapshot(nil); len(s.Candidates) != 1 || len(s.Services) != 0 || len(s.Problems) != 0 {
		t.Errorf("left: %+v", s)
	}
}
