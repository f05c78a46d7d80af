//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// netCheck is what `netcheck -o json` says, whatever it ends with.
func (g *gateway) netCheck() (n api.NetCheck, code int, stderr string) {
	g.t.Helper()
	r := g.postern(within(g.t, patience), "netcheck", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &n); err != nil {
		g.t.Fatalf("netcheck of %s: %v in %q, %q", g.name, err, r.stdout, r.stderr)
	}
	return n, r.code, r.stderr
}

// TestNetcheckNamesEveryNAT asks a gateway behind each kind.
func TestNetcheckNamesEveryNAT(t *testing.T) {
	t.Parallel()
	const (
		independent = "endpoint-independent"
		byAddress   = "address-dependent"
		byBoth      = "address-and-port-dependent"
	)
	for _, c := range []struct {
		access             access
		mapping, filtering string // filtering "" is not looked at
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
				mapping := n.Mapping == c.mapping || c.mapping == byBoth && n.Mapping == "endpoint-dependent"
				return mapping && n.Filtering == c.filtering, fmt.Sprintf("mapping %s, filtering %s", n.Mapping, n.Filtering)
			})
			if n.Mapping == "endpoint-dependent" {
				t.Errorf("mapping is %s, want %s: the servers can tell", n.Mapping, c.mapping)
			}
			if !slices.ContainsFunc(n.PublicAddresses, func(a string) bool { return hasHost(a, s.right.outer.String()) }) {
				t.Errorf("public addresses are %v, want %s among them", n.PublicAddresses, s.right.outer)
			}
			for _, server := range n.STUNServers {
				if server.Error != "" || server.RTTSeconds <= 0 || server.Mapped == "" {
					t.Errorf("STUN server %+v: want a round trip and a mapped address", server)
				}
			}
			for _, server := range n.TURNServers {
				if server.Error != "" || server.Relayed == "" || server.Transport != "udp" {
					t.Errorf("TURN server %+v: want a relayed address over udp", server)
				}
			}
			if len(n.STUNServers) != 2 || len(n.TURNServers) != 1 {
				t.Errorf("netcheck has %d STUN servers and %d TURN servers; want 2 and 1", len(n.STUNServers), len(n.TURNServers))
			}
			if limits := c.filtering != independent; limits && len(n.Hints) == 0 {
				t.Error("netcheck does not say what the NAT means for peering")
			}
			if got := s.right.status().Gateway.NAT; got.Mapping != n.Mapping || got.Filtering != n.Filtering {
				t.Errorf("status says %+v, netcheck %s and %s", got, n.Mapping, n.Filtering)
			}
		})
	}
}
