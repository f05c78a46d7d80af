package pod

import (
	"fmt"
	"testing"
)

// TestAddressesOfPodsAreNotAnnounced: only those that are reachable from outside are.
func TestAddressesOfPodsAreNotAnnounced(t *testing.T) {
	for _, c := range []struct{ one, all, node, want string }{
		{"10.244.0.5", "10.244.0.5,fd00:10:244::5", "192.0.2.7", "[10.244.0.5/32 10.244.0.5/32 fd00:10:244::5/128]"},
		{"100.64.3.4", "", "", "[100.64.3.4/32]"}, // by a chart from before POD_IPS and HOST_IP
		{"10.0.0.7", "10.0.0.7,2001:db8::7", "10.0.0.8", "[10.0.0.7/32 10.0.0.7/32]"},
		{"10.0.0.7", "10.0.0.7", "10.0.0.7", "[]"}, // on the node's network
	} {
		set := map[string]string{AddressVariable: c.one, AddressesVariable: c.all, NodeVariable: c.node}
		if got := fmt.Sprint(inside(func(name string) string { return set[name] })); got != c.want {
			t.Errorf("a pod with %v announces all but %s, want %s", set, got, c.want)
		}
	}
}
