package check

import (
	"cmp"
	"fmt"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NamePortmap is the check of the port mapping on the router.
const NamePortmap = "portmap"

// Mapping is the port mapping, as in api.PortMappingStatus.
type Mapping struct {
	State, Protocol, Router, External, Verified, Err string
	// Code says what is wrong with it; empty if nothing is, or if it is not known yet.
	Code catalogue.Code
}

// PortMapping checks the mapping; there is no check without port mapping, or before its first
// result.
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
