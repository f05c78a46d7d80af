package check

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// foundElsewhere returns the problems found by other components, sorted by check name and code.
// They do not know how others see this gateway.
func foundElsewhere(o Own, now time.Time) []verdict.Finding {
	problems, seenAs := slices.Clone(o.Found), o.SeenAs()
	slices.SortStableFunc(problems, func(a, b OwnProblem) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Code, b.Code))
	})
	var out []verdict.Finding
	taken := map[string]bool{}
	for _, found := range problems {
		r := beginOwn(unique(taken, found))
		p := found.Params
		p.Inbound, p.Own = true, seenAs
		if !found.Since.IsZero() {
			p.Age = max(0, now.Sub(found.Since))
		}
		out = append(out, r.fail(catalogue.Severity(found.Code), StageResolve, found.Code, p))
	}
	return out
}

// unique returns a name that no other check has: a second problem of a name has its code appended,
// and a third of that a number.
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
