//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// netCheck returns the output of `netcheck -o json`, whatever its exit code.
func (g *gateway) netCheck() (n api.NetCheck, code int, stderr string) {
	g.t.Helper()
	r := g.postern(within(g.t, patience), "netcheck", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &n); err != nil {
		g.t.Fatalf("netcheck of %s: %v in %q, %q", g.name, err, r.stdout, r.stderr)
	}
	return n, r.code, r.stderr
}

// allAnswer reports whether the two STUN servers and the relay of newSites answered.
func allAnswer(n api.NetCheck) bool {
	return len(n.STUNServers) == 2 && len(n.TURNServers) == 1 &&
		!slices.ContainsFunc(n.STUNServers, func(s api.STUNServerStatus) bool { return s.Error != "" || s.RTTSeconds <= 0 || s.Mapped == "" }) &&
		!slices.ContainsFunc(n.TURNServers, func(s api.TURNServerStatus) bool {
			return s.Error != "" || s.Relayed == "" || s.Transport != "udp"
		})
}

// TestNetcheckNamesEveryNAT tests a gateway behind each kind.
func TestNetcheckNamesEveryNAT(t *testing.T) {
	t.Parallel()
	const (
		independent = "endpoint-independent"
		byAddress   = "address-dependent"
		byBoth      = "address-and-port-dependent"
	)
	for _, c := range []struct {
		access             access
		mapping, filtering string // an empty filtering is not checked
	}{
		{dial, "none", independent},
		{fullCone, independent, independent},
		{addrRestricted, independent, byAddress},
		{portRestricted, independent, byBoth},
		{straying, independent, byBoth},
		{symmetric, byBoth, byBoth},
		{portChanging, independent, byBoth},
	} {
		t.Run(c.access.name, func(t *testing.T) {
			t.Parallel()
			s := newSites(t, dial, c.access, ways{})
			s.right.start()
			var n api.NetCheck
			eventually(within(t, patience), t, "netcheck names the NAT", func() (bool, string) {
				n, _, _ = s.right.netCheck()
				return n.Mapping == c.mapping && n.Filtering == c.filtering && allAnswer(n), fmt.Sprintf("mapping %s, filtering %s, servers %+v and %+v", n.Mapping, n.Filtering, n.STUNServers, n.TURNServers)
			})
			if !slices.ContainsFunc(n.PublicAddresses, func(a string) bool { return hasHost(a, s.right.outer.String()) }) {
				t.Errorf("public addresses are %v, want %s among them", n.PublicAddresses, s.right.outer)
			}
			if limits := c.filtering != independent; limits && len(n.Hints) == 0 {
				t.Error("netcheck does not say what the NAT means for peering")
			}
			eventually(within(t, patience), t, "status says the same", func() (bool, string) { // the gateway may be finding out again
				got := s.right.status().Gateway.NAT
				return got.Mapping == n.Mapping && got.Filtering == n.Filtering, fmt.Sprintf("%+v, netcheck %s and %s", got, n.Mapping, n.Filtering)
			})
		})
	}
}
