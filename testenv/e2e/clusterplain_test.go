//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// onMachine uses edge's exports from a machine without a cluster, at listeners of its own: as
// configured, after changes, and across a restart of its gateway.
func (s *clusterset) onMachine(t *testing.T) {
	t.Helper()
	local := map[string]string{"shop/web:80": "127.0.0.1:8080", "shop/web:9000/UDP": "127.0.0.1:9000/UDP"}
	g := newGateway(t, s.operator, "machine", func(spec *api.GatewaySpec) {
		spec.Peers = []api.Peer{{Name: "edge", Services: &api.PeerServices{Import: []string{"shop"}}, Local: &api.PeerLocal{Services: local}}}
	}).start()
	s.edge.join("machine", g.invite("--name", "edge"), "allow: []")
	g.waitConnected("edge")
	s.edge.waitPeer("machine", "connected", func(p peerObject) bool { return p.Status.State == "connected" })
	s.edge.kubectl("patch", "peer", "-n", gatewayNamespace, "machine", "--type=merge", "-p", `{"spec":{"services":{"export":["shop"]}}}`)

	web := func(at, who string) {
		t.Helper()
		eventually(within(t, patience), t, "a pod answers at "+at, func() (bool, string) {
			got, err := fetch(within(t, slow()*clientPatience), g.host, "http://"+at+"/")
			return err == nil && strings.Contains(got, who), fmt.Sprintf("%q, %v", got, err)
		})
	}
	web("127.0.0.1:8080", "web-")
	eventually(within(t, patience), t, "a datagram comes back", func() (bool, string) {
		c, err := g.host.DialContext(t.Context(), "udp", "127.0.0.1:9000")
		if err != nil {
			return false, err.Error()
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(slow() * clientPatience))
		b := make([]byte, 100)
		if _, err = c.Write([]byte("hello")); err != nil {
			return false, err.Error()
		}
		n, err := c.Read(b)
		return strings.Contains(string(b[:n]), "hello"), fmt.Sprintf("%q, %v", b[:n], err)
	})

	// A single pod gets a configured address, and a service loses its own.
	delete(local, "shop/web:80")
	local["shop/each:8080@web-1"] = "127.0.0.1:8081"
	g.reload()
	web("127.0.0.1:8081", "web-1")
	listed := func(service string) (out api.ClusterService) {
		t.Helper()
		var all api.ClusterServices
		if err := json.Unmarshal([]byte(g.must("services", "edge", "-o", "json")), &all); err != nil {
			t.Fatal(err)
		}
		for _, x := range all.Services {
			if x.Service == service && x.State == api.ServiceInUse {
				out = x
			}
		}
		return out
	}
	var at string
	eventually(within(t, patience), t, "the service has another address", func() (bool, string) {
		x := listed("shop/web")
		for _, a := range x.Addresses {
			if strings.HasPrefix(a, "127.0.0.1:2") {
				at = a
			}
		}
		return at != "", fmt.Sprintf("%+v", x)
	})
	web(at, "web-")
	if _, err := fetch(within(t, clientPatience), g.host, "http://127.0.0.1:8080/"); err == nil {
		t.Error("it answers at the old one as well")
	}

	g.stop(syscall.SIGKILL)
	g.start()
	web("127.0.0.1:8081", "web-1")
	web(at, "web-") // nothing else has the port
	local["shop/gone:80"] = "127.0.0.1:8082"
	g.reload()
	eventually(within(t, patience), t, "what is not exported is named", func() (bool, string) {
		out := g.postern(within(t, patience), "check").stdout
		return strings.Contains(out, "PST0911"), out
	})
	g.stop(syscall.SIGTERM)
	s.edge.kubectl("delete", "peer", "-n", gatewayNamespace, "machine")
}
