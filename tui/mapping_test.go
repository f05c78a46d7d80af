package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// TestNetCheckShowsThePortMapping has a working mapping, a failed one and a disabled one.
func TestNetCheckShowsThePortMapping(t *testing.T) {
	ends, retry := now.Add(58*time.Minute), now.Add(30*time.Second)
	for _, c := range []struct {
		mapping api.PortMappingStatus
		want    string
	}{
		{api.PortMappingStatus{Mode: "off", State: "off"}, "port mapping      off: off\n"},
		{api.PortMappingStatus{Mode: "auto", State: "mapped", Router: "192.168.1.1", Protocol: "PCP", External: "203.0.113.8:51820",
			Internal: "192.168.1.5:51820", ExpiresAt: &ends, Verified: "inbound"},
			"port mapping      auto: mapped, 203.0.113.8:51820 → 192.168.1.5:51820 by PCP, router 192.168.1.1, lease 58m, verified: inbound\n"},
		{api.PortMappingStatus{Mode: "auto", State: "failed", Router: "192.168.1.1", Error: "PCP: not authorized", RetryAt: &retry},
			"port mapping      auto: failed, router 192.168.1.1 ✗ PCP: not authorized, next try in 30s\n"},
	} {
		got := NetCheck(api.NetCheck{PortMapping: c.mapping}, 0, Options{Now: now})
		if !strings.Contains(got, c.want) {
			t.Errorf("got:\n%s\nwant in it:\n%s", got, c.want)
		}
	}
}
