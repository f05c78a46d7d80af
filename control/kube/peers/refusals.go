package peers

import (
	"cmp"

	"github.com/postern-dev/postern/control/check"
)

// sourceRefused is the source of problems of Peers that are not in force as they are, and
// checkRefused the check of this gateway that shows them: what is not in force is no peer's fault.
const (
	sourceRefused = "refused-peers"
	checkRefused  = "peers"
)

// tellRefused reports the Peers that are not in force as they are to the gateway's own checks.
func (c *Controller) tellRefused() {
	var list []check.OwnProblem
	for _, x := range c.candidates {
		if f := cmp.Or(x.refused, x.noted); f != nil && !x.leaving {
			list = append(list, check.OwnProblem{Name: checkRefused, Code: f.code, Params: f.params})
		}
	}
	c.SetProblems(sourceRefused, list)
}
