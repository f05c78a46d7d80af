package check

import (
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameRestarts is the check of a peer's gateway that starts again and again. It exists while it does,
// and the peer answers.
const NameRestarts = "restarts"

// restartSlack is added to the time until the next start that is expected in a crash loop.
const restartSlack = 30 * time.Second

const (
	// atOnce is how many starts in a row one cause may have: while replicas are upgraded one after the
	// other, each may be the gateway for a moment.
	atOnce = 3
	// togetherShare is the share of the longest time between two starts below which two belong together.
	// A supervisor's pauses stay the same or grow: those that belong together by this are the first
	// ones of a crash loop, and it takes no longer to be noticed.
	togetherShare = 3
)

// crashLoop reports whether the peer's gateway starts again and again: more than recentStarts times
// within recentFor, and the last time no longer ago than another start may take. Starts that belong
// together count once. Supervisors double
// the pause before each start, so that is twice the longest time between two, or more.
func (f Facts) crashLoop(now time.Time, p *catalogue.Params) bool {
	n := len(f.Boots)
	if n == 0 || len(f.BootsAt) != n || f.takesTurns(now) {
		return false
	}
	p.Starts, p.Age, p.Seen = 0, 0, f.BootsAt[n-1]
	var longest time.Duration
	var apart []time.Duration                                                                      // the last first
	for i := n - 1; i > 0 && now.Sub(f.BootsAt[i]) < recentFor && f.Boots[i] > f.Boots[i-1]; i-- { // the first was there before
		p.Starts, p.Age = p.Starts+1, now.Sub(f.BootsAt[i])
		if p.Starts > 1 {
			apart = append(apart, f.BootsAt[i+1].Sub(f.BootsAt[i]))
			longest = max(longest, apart[len(apart)-1])
		}
	}
	causes, together := min(p.Starts, 1), 1
	for _, d := range apart {
		if together++; d >= longest/togetherShare || together > atOnce {
			causes, together = causes+1, 1
		}
	}
	return causes > recentStarts && now.Sub(p.Seen) <= 2*longest+restartSlack
}

// restarting explains a silence, and an error that says that nothing listens.
func (e evidence) restarting(p *catalogue.Params) bool {
	return e.gone && !e.probed && e.crashLoop(e.now, p)
}

// restartsOf returns the finding about the restarts of a peer that answers; false without any.
func restartsOf(f Facts) (verdict.Finding, bool) {
	var p catalogue.Params
	if !f.crashLoop(time.Now(), &p) {
		return verdict.Finding{}, false
	}
	r := begin(NameRestarts, api.ServiceGateway, f)
	return r.fail(api.Warning, StageProbe, catalogue.PeerRestarts, p), true
}
