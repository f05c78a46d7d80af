package check

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// foundResults are the verdicts on what others have found of this gateway, in the order of
// the checks' names and then of the codes.
func foundResults(problems []OwnProblem, now time.Time) []Result {
	problems = slices.Clone(problems)
	slices.SortStableFunc(problems, func(a, b OwnProblem) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Code, b.Code))
	})
	var out []Result
	taken := map[string]bool{}
	for _, found := range problems {
		r := begin(api.ServiceGateway, Facts{})
		r.name, r.via = unique(taken, found), ""
		p := found.Params
		p.Inbound = true
		if !found.Since.IsZero() {
			p.Age = max(0, now.Sub(found.Since))
		}
		out = append(out, r.fail(Severity(found.Code), StageResolve, found.Code, p))
	}
	return out
}

// unique is a name that no other check has: a second problem of a name has its code behind
// it, and a third of that a number.
func unique(taken map[string]bool, found OwnProblem) string {
	name := found.Name
	for i := 1; taken[name]; i++ {
		name = found.Name + "-" + string(found.Code)
		if i > 1 {
			name += "-" + strconv.Itoa(i)
		}
	}
	taken[name] = true
	return name
}

// Severity is the outcome of an own check that ends with a code: a warning for what keeps
// no peer from being reached by itself.
func Severity(c catalogue.Code) api.Outcome {
	switch c {
	case catalogue.LoadBalancerPending, catalogue.NodePortPrivate, catalogue.ExposureUnknown, catalogue.APIServerUnlocated, catalogue.ExposureMoved, catalogue.PodRefused,
		catalogue.DomainUnanswered, catalogue.DomainEmpty, catalogue.RecordUnusable,
		catalogue.MappingStale, catalogue.MappingRefused, catalogue.RouterSilent, catalogue.MappingInside, catalogue.MappingElsewhere, catalogue.TicketRefused, catalogue.EntryAside:
		return api.Warning
	}
	return api.Error
}
