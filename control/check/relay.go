package check

import (
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameRelay is the check of a relay in use if the gateway's check says something else.
const NameRelay = "relay"

// relayGrace is how long a relay may be in use before it is worth a warning: a path starts on the
// relay, and a direct one replaces it within 10 s if there is one (1,000 punches for each pair of
// NATs, discovery/path).
const relayGrace = 15 * time.Second

func (f Facts) relayed(now time.Time) bool {
	return f.Path.Kind == api.PathRelay && now.Sub(f.Path.Since) >= relayGrace
}

// relayInUse is the verdict on a peer that is reached only over a relay.
func (r *recorder) relayInUse(rtt time.Duration) verdict.Finding {
	f := r.facts
	var p catalogue.Params
	p.Address, p.Relay, p.NAT, p.PeerNAT = f.Path.Remote, f.Path.Relay, f.Path.NAT, f.Path.PeerNAT
	if !f.Path.Since.IsZero() {
		p.Age = time.Since(f.Path.Since)
	}
	p.Candidates, p.Own = notRelayed(f.Candidates), f.shown().SeenAs()
	p.Port = f.shown().Port
	res := r.found(api.Warning, StageProbe, catalogue.RelayInUse, p)
	res.RTT = rtt
	for i := range res.Stages {
		if res.Stages[i].Name == StageProbe {
			res.Stages[i].Outcome = api.Warning
		}
	}
	return res
}

func notRelayed(candidates []catalogue.Candidate) []catalogue.Candidate {
	var out []catalogue.Candidate
	for _, c := range candidates {
		if !c.Relayed() {
			out = append(out, c)
		}
	}
	return out
}
