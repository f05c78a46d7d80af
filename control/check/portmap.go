package check

import (
	"cmp"
	"fmt"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// NamePortmap is the check of the port that the router maps.
const NamePortmap = "portmap"

// Mapping is the port that the router is asked for, in the words of api.PortMappingStatus.
type Mapping struct {
	State, Protocol, Router, External, Verified, Err string
	// Code says what is wrong with it; empty when nothing is, or that is not known yet.
	Code catalogue.Code
}

// PortMapping judges the mapping; false when no router is asked, or none was to the end.
func PortMapping(o Own) (Result, bool) {
	m := o.Mapping
	if m == nil {
		return Result{}, false
	}
	r := begin(api.ServiceGateway, Facts{})
	r.name, r.via = NamePortmap, ""
	if m.Code == "" {
		if m.External == "" {
			return Result{}, false
		}
		r.passed(StageProbe, fmt.Sprintf("%s by %s of the router %s, verified by %s", m.External, m.Protocol, m.Router, cmp.Or(m.Verified, "none")))
		return r.ok(0), true
	}
	p := catalogue.Params{Detail: m.Err}
	p.Inbound, p.Port, p.Router, p.Mapped = true, o.ListenPort, m.Router, m.External
	return r.fail(Severity(m.Code), StageProbe, m.Code, p), true
}
