package peers

import "github.com/postern-dev/postern/control/check"

// sourceRefused is the source of problems of Peers that are not in force, and checkRefused the
// check of this gateway that shows them: the gateway has no peer that a check could be about.
const (
	sourceRefused = "refused-peers"
	checkRefused  = "peers"
)

// tellRefused reports the Peers that are not in force to the gateway's own checks.
func (c *Controller) tellRefused() {
	var list []check.OwnProblem
	for _, x := range c.candidates {
		if x.refused != nil && !x.leaving {
			list = append(list, check.OwnProblem{Name: checkRefused, Code: x.refused.code, Params: x.refused.params})
		}
	}
	c.SetProblems(sourceRefused, list)
}
