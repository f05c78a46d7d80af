package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameLAN is the check of LAN discovery.
const NameLAN = "lan"

// LANFacts are what is known about LAN discovery.
type LANFacts struct {
	// AnnouncedAs is this gateway's name there; empty while it has none.
	AnnouncedAs string
	// Interfaces are those in use; Found counts the gateways found.
	Interfaces []string
	Found      int
	Problems   []OwnProblem
}

// LAN checks LAN discovery; there is no check if that is off.
func LAN(l *LANFacts) []verdict.Finding {
	if l == nil {
		return nil
	}
	said := "not announced yet"
	if l.AnnouncedAs != "" {
		said = fmt.Sprintf("announced as %q", cleanText(l.AnnouncedAs))
	}
	said += fmt.Sprintf(" on %s; %d found", cmp.Or(strings.Join(l.Interfaces, ", "), "no interface"), l.Found)
	if len(l.Problems) == 0 {
		r := beginOwn(NameLAN)
		r.passed(StageResolve, said)
		return []verdict.Finding{r.ok(0)}
	}
	var out []verdict.Finding
	for _, found := range l.Problems {
		r := beginOwn(NameLAN)
		p := found.Params
		p.Inbound = true
		out = append(out, r.fail(catalogue.Severity(found.Code), StageResolve, found.Code, p))
	}
	return out
}
