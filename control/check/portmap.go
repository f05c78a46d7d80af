package check

import (
	"cmp"
	"fmt"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NamePortmap is the check of the port that the router maps.
const NamePortmap = "portmap"

// Mapping is the port that the router is asked for, in the words of api.PortMappingStatus.
type Mapping struct {
	State, Protocol, Router, External, Verified, Err string
	// Code says what is wrong with it; empty when nothing is, or that is not known yet.
	Code catalogue.Code
}

// PortMapping judges the mapping; there is no check when no router is asked, or none was to the end.
func PortMapping(o Own) []verdict.Finding {
	m, r := o.Mapping, beginOwn(NamePortmap)
	switch {
	case m == nil || m.Code == "" && m.External == "":
		return nil
	case m.Code == "":
		r.passed(StageProbe, fmt.Sprintf("%s by %s of the router %s, verified by %s", m.External, m.Protocol, m.Router, cmp.Or(m.Verified, "none")))
		return []verdict.Finding{r.ok(0)}
	}
	p := catalogue.Params{Detail: m.Err}
	p.Inbound, p.Port, p.Router, p.Mapped = true, o.Port, m.Router, m.External
	return []verdict.Finding{r.fail(catalogue.Severity(m.Code), StageProbe, m.Code, p)}
}
