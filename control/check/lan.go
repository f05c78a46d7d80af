package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameLAN is the check of finding gateways on the local network.
const NameLAN = "lan"

// LANFacts are what is known of finding gateways on the local network.
type LANFacts struct {
	// AnnouncedAs is the name that this gateway has there; empty while it has none.
	AnnouncedAs string
	// Interfaces are those in use, Found counts the gateways found there.
	Interfaces []string
	Found      int
	Problems   []OwnProblem
}

// LAN judges whether gateways can be found on the local network; there is no check when that is off.
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
