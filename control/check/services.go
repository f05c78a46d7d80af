package check

import (
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/mcs"
)

// NameServices is the gateway's own check that shows problems with cluster services.
const NameServices = "services"

// OfServices converts problems with cluster services to own ones, the first of each kind and peer:
// a peer's catalogue may have thousands.
func OfServices(list []mcs.Problem) []OwnProblem {
	type kind struct {
		code catalogue.Code
		peer string
	}
	told := map[kind]bool{}
	var out []OwnProblem
	for _, x := range list {
		if k := (kind{x.Code, x.Peer}); !told[k] {
			told[k] = true
			out = append(out, OwnProblem{Name: NameServices, Code: x.Code, Params: x.Params()})
		}
	}
	return out
}
