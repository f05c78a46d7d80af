package clusterset

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mcs"
)

// A peer with too many listeners gets its share, by name, and leaves the others theirs.
func TestListenersFit(t *testing.T) {
	wanted := map[mcs.Name][]forward.Local{}
	for i := range 4 {
		n := mcs.Name{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		for port := range 3 {
			wanted[n] = append(wanted[n], forward.Local{Peer: "east", Service: fmt.Sprintf("%s:%d", n, port)})
		}
		wanted[n] = append(wanted[n], forward.Local{Peer: "west", Service: n.String() + ":0"})
	}
	for _, c := range []struct {
		all, each         int
		east, west, short int
	}{
		{100, 100, 12, 4, 0},
		{100, 5, 5, 4, 7},
		{8, 5, 4, 4, 8},
	} {
		fits, over := fit(wanted, nil, c.all, c.each)
		have, short := map[string]int{}, 0
		for _, l := range fits {
			have[l.Peer]++
		}
		for _, n := range over {
			short += n
		}
		if have["east"] != c.east || have["west"] != c.west || short != c.short {
			t.Errorf("%d in all and %d each: %v, %d are missing; want %+v", c.all, c.each, have, short, c)
		}
	}
	if _, over := fit(wanted, nil, 100, 5); over[surplus{"east", mcs.Name{Namespace: "shop", Name: "web-0"}}] != 0 || over[surplus{"east", mcs.Name{Namespace: "shop", Name: "web-1"}}] != 1 {
		t.Errorf("they are not left out by name: %v", over)
	}
}

// A namespace that exports much leaves room for the others of its cluster.
func TestListenersOfNamespacesFit(t *testing.T) {
	wanted := map[mcs.Name][]forward.Local{}
	want := func(n mcs.Name, listeners int) {
		for i := range listeners {
			wanted[n] = append(wanted[n], forward.Local{Peer: "east", Service: fmt.Sprintf("%s:5432@db-%d", n, i)})
		}
	}
	want(mcs.Name{Namespace: "a", Name: "db"}, 1000)
	want(mcs.Name{Namespace: "a", Name: "dc"}, 1000)
	want(mcs.Name{Namespace: "bank", Name: "web"}, 1)
	want(mcs.Name{Namespace: "shop", Name: "web"}, 3)
	fits, over := fit(wanted, nil, 4000, 2000)
	if len(fits) != 2000 || len(over) != 1 || over[surplus{"east", mcs.Name{Namespace: "a", Name: "dc"}}] != 4 {
		t.Errorf("%d fit, and missing are %v", len(fits), over)
	}
}

// A listener that is open keeps its place, whatever the names of new ones are.
func TestListenersThatAreOpenStay(t *testing.T) {
	wanted, at := map[mcs.Name][]forward.Local{}, map[place]netip.AddrPort{}
	want := func(name, port string) {
		n := mcs.Name{Namespace: "shop", Name: name}
		wanted[n] = append(wanted[n], forward.Local{Peer: "east", Service: n.String() + ":" + port})
	}
	for _, name := range []string{"dd", "ee"} {
		want(name, "80")
		want(name, "81")
	}
	fits, _ := fit(wanted, at, 4, 4)
	for _, l := range fits {
		at[place{l.Peer, l.Service}] = netip.AddrPort{}
	}
	want("aa", "80")
	want("dd", "79")
	fits, over := fit(wanted, at, 4, 4)
	for _, l := range fits {
		if _, open := at[place{l.Peer, l.Service}]; !open {
			t.Errorf("%s took the place of another", l.Service)
		}
	}
	if len(fits) != 4 || len(over) != 2 {
		t.Errorf("%d fit, and missing are %v", len(fits), over)
	}
}
