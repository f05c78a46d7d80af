package check

import (
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/verdict"
)

// services are the findings but for those of the gateway itself.
func (r Round) services() []verdict.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f verdict.Finding) bool { return f.Target == api.ServiceGateway })
}

// Findings are those of the last round of checks of a peer, which nobody may change; none
// before the first round.
func (r *Runner) Findings(peer string) []verdict.Finding {
	r.mu.Lock()
	w := r.peers[peer]
	r.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.report().Findings
}

// Finding is the last of a check of a peer; nothing before the first round.
func (r *Runner) Finding(peer, name string) verdict.Finding {
	f, _ := verdict.Find(r.Findings(peer), name)
	return f
}
