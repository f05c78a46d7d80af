package check

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

func TestTheMappedPort(t *testing.T) {
	well := Mapping{State: "mapped", Protocol: "PCP", Router: "192.168.1.1", External: "203.0.113.9:51820", Verified: "inbound"}
	failed := func(code catalogue.Code, external, why string) *Mapping {
		return &Mapping{State: "failed", Router: "192.168.1.1", External: external, Err: why, Code: code}
	}
	for _, c := range []struct {
		name    string
		mapping *Mapping
		verdict api.Outcome
		says    string
	}{
		{"not asked for", nil, "", ""},
		{"being asked for", &Mapping{State: "asking", Router: "192.168.1.1"}, "", ""},
		{"mapped", &well, api.OK, ""},
		{"stale", failed(catalogue.MappingStale, well.External, "nothing from outside comes through"), api.Warning, "lists 203.0.113.9:51820 for this gateway, but nothing from outside comes"},
		{"refused", failed(catalogue.MappingRefused, "", "PCP: not authorized"), api.Warning, "the router 192.168.1.1 was asked to map a port to this gateway and refused: PCP: not authorized"},
		{"silent", failed(catalogue.RouterSilent, "", "PCP: no answer"), api.Warning, "asks its router 192.168.1.1 for a port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r verdict.Finding
			all := PortMapping(Own{Shown: catalogue.Shown{Port: 51820}, Mapping: c.mapping})
			if len(all) > 0 {
				r = all[0]
			}
			if r.Outcome != c.verdict || !strings.Contains(r.Verdict().Cause, c.says) {
				t.Fatalf("got %+v, want %q with %q", all, c.verdict, c.says)
			}
			if c.mapping != nil && r.Code != c.mapping.Code {
				t.Errorf("code %q, want %q", r.Code, c.mapping.Code)
			}
		})
	}
}
