package check

import (
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// Targets are the verdicts of a report.
func (r Report) Targets() api.Targets {
	t := unknownTargets()
	for _, res := range r.Results {
		switch res.Name {
		case api.ServiceAuth:
			t.Auth = res.Verdict
		case api.ServiceAPIServer:
			t.APIServer = res.Verdict
		case api.ServiceGateway:
			t.Gateway = res.Verdict
		}
	}
	return t
}

// DirectTargets are the verdicts of a report on a peer whose auth and API server are used
// outside the tunnel.
func (r Report) DirectTargets() api.Targets {
	t := unknownTargets()
	for _, res := range r.Results {
		switch res.Name {
		case NameAuthDirect:
			t.Auth = res.Verdict
		case NameAPIServerDirect:
			t.APIServer = res.Verdict
		case api.ServiceGateway:
			t.Gateway = res.Verdict
		}
	}
	return t
}

// find gives the result of a check.
func (r Report) find(name string) (Result, bool) {
	i := slices.IndexFunc(r.Results, func(res Result) bool { return res.Name == name })
	if i < 0 {
		return Result{}, false
	}
	return r.Results[i], true
}

// services are the results but for those of the gateway itself.
func (r Report) services() []Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(res Result) bool { return res.Target == api.ServiceGateway })
}

// unknownTargets are the verdicts before the first result.
func unknownTargets() api.Targets {
	v := api.Verdict{Verdict: api.Unknown}
	return api.Targets{Auth: v, APIServer: v, Gateway: v}
}

// last is the report of the last round of checks of a peer; empty before the first one.
func (r *Runner) last(peer string) Report {
	r.mu.Lock()
	w := r.peers[peer]
	r.mu.Unlock()
	if w == nil {
		return Report{}
	}
	return w.report()
}

// Targets are the last verdicts on a peer; unknown before the first round.
func (r *Runner) Targets(peer string) api.Targets {
	return r.last(peer).Targets()
}

// Results are those of the last round of checks of a peer, which nobody may change; none
// before the first round.
func (r *Runner) Results(peer string) []Result {
	return r.last(peer).Results
}

// Code is that of the last verdict of a check of a peer; empty before the first round.
func (r *Runner) Code(peer, name string) catalogue.Code {
	results := r.Results(peer)
	for i := range results { // each is half a kilobyte
		if results[i].Name == name {
			return catalogue.Code(results[i].Verdict.Code)
		}
	}
	return ""
}

// DirectTargets are the last verdicts on a peer, of its auth and API server outside the
// tunnel; unknown before the first round.
func (r *Runner) DirectTargets(peer string) api.Targets {
	return r.last(peer).DirectTargets()
}
