//go:build linux && e2e

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// dig queries a gateway's local listener.
func dig(g *gateway, args ...string) (string, error) {
	return g.host.Run(within(g.t, patience), append([]string{"dig", "@127.0.0.1", "-p", "5353", "+short", "+tries=5", "+time=1"}, args...)...)
}

// Third-party name servers answer a third-party resolver, over UDP.
func TestDNSOverUDP(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]serveZone{"BIND": named, "dnsmasq": dnsmasq} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			zone := serve(w.cloud, dnsDomain, netip.MustParseAddr(cloudAddr), "short TXT \"hello\"\n")
			cloud := newGateway(t, w.cloud, "cloud", func(s *api.GatewaySpec) {
				s.Services.Named = append(s.Services.Named, api.NamedService{Name: "resolver", Protocol: api.UDP, Port: 53, Address: cloudAddr + ":53"},
					api.NamedService{Name: "several", Protocol: api.UDP, Ports: "6051-6053", Address: cloudAddr + ":51"})
			}).start()
			edge := newGateway(t, w.edge, "edge").start()
			enrol(cloud, edge, []string{"--allow", "auth,resolver,several"}, []string{"--local", "resolver=127.0.0.1:5353/UDP,several=127.0.0.1:5451-5453/UDP"})
			eventually(within(t, patience), t, "an answer", func() (bool, string) {
				got, err := dig(edge, "short."+dnsDomain, "TXT")
				return err == nil && strings.TrimSpace(got) == `"hello"`, fmt.Sprintf("%q, %v", got, err)
			})
			// The last port of a range leads to the last one there.
			eventually(within(t, patience), t, "an answer by the last port of several", func() (bool, string) {
				got, err := dig(edge, "-p", "5453", "short."+dnsDomain, "TXT")
				return err == nil && strings.TrimSpace(got) == `"hello"`, fmt.Sprintf("%q, %v", got, err)
			})
			// Each query has its own port, and so its own flow.
			const questions = 200
			file := filepath.Join(t.TempDir(), "questions")
			if err := os.WriteFile(file, []byte(strings.Repeat("short."+dnsDomain+" TXT\n", questions)), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := dig(edge, "-f", file); err != nil || strings.Count(got, `"hello"`) != questions {
				t.Errorf("%d of %d answers, %v", strings.Count(got, `"hello"`), questions, err)
			}
			if p, _ := cloud.peer("edge"); p.UDPFlows < questions/2 {
				t.Errorf("cloud has %d flows", p.UDPFlows)
			}
			if out := cloud.must("status", "edge"); !strings.Contains(out, "/UDP") {
				t.Errorf("status does not list flows of UDP:\n%s", out)
			}
			if n, _ := edge.metric("postern_forward_udp_flows_total", `direction="outbound"`); n < questions/2 { // ports may come again
				t.Errorf("edge counts %v flows", n)
			}

			// A query that is not granted is not forwarded, and a missing server is named.
			cloud.must("peer", "allow", "edge", "auth")
			if got, err := dig(edge, "+tries=1", "short."+dnsDomain, "TXT"); err == nil {
				t.Errorf("answered without a grant: %q", got)
			}
			if p, _ := cloud.peer("edge"); p.UDPFlows != 0 {
				t.Errorf("cloud has %d flows without a grant", p.UDPFlows)
			}
			cloud.must("peer", "allow", "edge", "auth,resolver")
			zone.Stop()
			eventually(within(t, patience), t, "a question that finds no server", func() (bool, string) {
				_, _ = dig(edge, "+tries=1", "short."+dnsDomain, "TXT")
				n, _ := cloud.metric("postern_forward_refused_udp_flows_total", `direction="inbound"`, `reason="upstream_down"`)
				return n > 0, "it is not counted"
			})
			cloud.waitLog("PST0310", "resolver")
		})
	}
}
