package check

import (
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameInterruptions is the check of a path that is interrupted at regular intervals. It exists while
// it is, and the peer answers.
const NameInterruptions = "interruptions"

// interruptionSlack is added to the times until the next interruption, and its end, that are expected.
const interruptionSlack = 30 * time.Second

// Interruptions are the interruptions of the path to a peer that came at regular intervals; zero for
// none.
type Interruptions struct {
	Times         int
	Period, Apart time.Duration // Apart is the longest time between two: some may not have been seen
	Longest       time.Duration
	First, Last   time.Time // when the first began, and the last ended
}

// interrupted reports whether the path is interrupted at regular intervals: the last time no longer
// ago than twice the time that another may take.
func (f Facts) interrupted(now time.Time, p *catalogue.Params) bool {
	x := f.Path.Interruptions
	if x.Times == 0 || now.Sub(x.Last) > 2*x.Apart+interruptionSlack {
		return false
	}
	p.Interruptions, p.Period, p.Longest, p.Age = x.Times, x.Period, x.Longest, max(0, now.Sub(x.First))
	return true
}

// interrupted explains a silence that is no longer than the interruptions before.
func (e evidence) interrupted(p *catalogue.Params) bool {
	silence := e.now.Sub(e.lastHeard())
	if !e.gone || e.probed || silence > 2*e.Path.Interruptions.Longest+interruptionSlack || !e.Facts.interrupted(e.now, p) {
		return false
	}
	e.readdressed(p)
	return true
}

// interruptionsOf returns the finding about the interruptions of a path that works now; false without
// any.
func interruptionsOf(f Facts) (verdict.Finding, bool) {
	now := time.Now()
	e := evidenceOf(f, now, now)
	p := e.params()
	if !f.interrupted(now, &p) {
		return verdict.Finding{}, false
	}
	r := begin(NameInterruptions, api.ServiceGateway, f)
	r.Rests = []string{verdict.Own(NameNetwork)}
	return r.fail(api.Warning, StageProbe, catalogue.PathInterrupted, p), true
}
