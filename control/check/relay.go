package check

import (
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameRelay is the check of a relay in use where the check of the gateway has something
// else to say.
const NameRelay = "relay"

// relayGrace is how long a relay may be in use before it is worth a warning: a path begins
// on the relay, and the direct one takes its place within 10 s where there is one (1,000
// punches of each pair of NATs, discovery/path).
const relayGrace = 15 * time.Second

func (f Facts) relayed(now time.Time) bool {
	return f.Path.Kind == api.PathRelay && now.Sub(f.Path.Since) >= relayGrace
}

// relayInUse is the verdict on a peer that is reached over a relay only.
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
