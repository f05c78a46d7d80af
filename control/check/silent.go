package check

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// silences are the codes for requests that go unanswered, however often they are repeated.
var silences = []catalogue.Code{
	catalogue.Unanswered, catalogue.HandshakeStale, catalogue.NotHeardByPeer, catalogue.PingLost,
	catalogue.StunUnreachable, catalogue.TurnUnreachable, catalogue.NothingAnswers,
}

// silentSince sets when silent findings became silent: when the round began if they were not silent
// before, but not before the finding was last heard.
func silentSince(began time.Time, list, before []verdict.Finding) {
	for i, f := range list {
		if !slices.Contains(silences, f.Code) {
			list[i].Since = time.Time{}
			continue
		}
		was, _ := verdict.Find(before, f.Ref())
		first := was.Since
		if first.IsZero() {
			first = began
		}
		if first.After(f.Since) {
			list[i].Since = first
		}
	}
}
