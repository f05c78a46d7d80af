package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
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

// LAN judges whether gateways can be found on the local network.
func LAN(l LANFacts) []Result {
	said := "not announced yet"
	if l.AnnouncedAs != "" {
		said = fmt.Sprintf("announced as %q", cleanText(l.AnnouncedAs))
	}
	said += fmt.Sprintf(" on %s; %d found", cmp.Or(strings.Join(l.Interfaces, ", "), "no interface"), l.Found)
	if len(l.Problems) == 0 {
		r := begin(api.ServiceGateway, Facts{})
		r.name, r.via = NameLAN, ""
		r.passed(StageResolve, said)
		return []Result{r.ok(0)}
	}
	var out []Result
	for _, found := range l.Problems {
		r := begin(api.ServiceGateway, Facts{Name: found.Params.Peer})
		r.name, r.via = NameLAN, ""
		p := found.Params
		p.Inbound = true
		out = append(out, r.fail(lanSeverity(found.Code), StageResolve, found.Code, p))
	}
	return out
}

// lanSeverity: without any way to hear others, what the configuration asks for is not done;
// the rest may be as it should be.
func lanSeverity(c catalogue.Code) api.Outcome {
	if c == catalogue.LANNoInterface || c == catalogue.LANNotJoined {
		return api.Error
	}
	return api.Warning
}
