package check

import (
	"maps"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

const (
	// recentFor is how long a failure is remembered.
	recentFor = 10 * time.Minute
	// recentSlot is the resolution of the counts within that time.
	recentSlot  = 30 * time.Second
	recentSlots = int64(recentFor/recentSlot) + 1 // the first is in part older
	// recentApart is how long a check must have worked again until another failure shows that it
	// comes and goes: of a server that starts, one attempt may work before it does. Rounds on demand
	// count only if none has counted for as long. It is less than the time between two rounds.
	recentApart = 20 * time.Second
	// recentStarts is how many restarts of a peer within recentFor of each other are no fault. More
	// are a crash loop.
	recentStarts = 2
	// maxRecent bounds the checks that are remembered, of a peer or of this gateway.
	maxRecent = 64
)

// recent remembers which checks failed lately, of a peer or of this gateway. It alone decides
// which of them come and go. Only rounds that really tried a check count. The zero value remembers
// nothing.
type recent struct {
	// counted is when a round last counted.
	counted time.Time
	checks  map[string]*record // by [verdict.Finding.Ref]
}

// record is what is remembered about a check.
type record struct {
	at   time.Time // of the last finding that counted
	said outcome   // what that said
	// lapse is nil if the check has not failed, and of no use after recentFor. before is what lapse was
	// before the current outage: if that turns out to follow from another check, it never was.
	lapse, before *lapse
}

// outcome is what a finding says about whether something works.
type outcome int

const (
	unsaid outcome = iota
	works
	fails
)

// outcomeOf returns what a finding says. One that depends on another check says nothing, nor does
// one of what others sent lately, which is remembered for minutes. Warnings about a peer's tunnel
// are measurements over minutes of how well it works.
func outcomeOf(f verdict.Finding) outcome {
	measured := f.Direction != api.DirectionOwn && f.Target == api.ServiceGateway
	switch {
	case f.Because != nil, f.Code == catalogue.UnknownKey, f.Code == catalogue.KeyElsewhere:
		return unsaid
	case f.Failed(), f.Outcome == api.Warning && !measured:
		return fails
	case f.Outcome == api.OK, f.Outcome == api.Warning:
		return works
	}
	return unsaid
}

// lapse is a failure of a check that had worked, and what has followed.
type lapse struct {
	first time.Time       // when it was counted first
	last  verdict.Finding // the last failure
	began time.Time       // when the last outage did
	// back is when the check last began to work again; zero as long as there were only restarts.
	back     time.Time
	again    bool // it has failed since
	restarts int  // outages that were restarts of the peer
	slots    [recentSlots]tally
}

// tally counts the checks of one slot of time.
type tally struct {
	slot             int64
	checks, failures int
}

// counts reports whether a round counts, and assumes that it then does. One that somebody demanded
// does not count more than those on schedule.
func (m *recent) counts(scheduled bool, now time.Time) bool {
	if !scheduled && now.Sub(m.counted) < recentApart {
		return false
	}
	m.counted = now
	return true
}

// lasts notes the failures of a round that does not count: it shows nothing new, but that what came and
// went is there.
func (m *recent) lasts(list []verdict.Finding, now time.Time) {
	for _, f := range list {
		if r := m.checks[f.Ref()]; r != nil && r.lapse != nil && !r.lapse.past(now) && outcomeOf(f) == fails && f.At.After(r.lapse.last.At) {
			r.lapse.last.At = f.At
		}
	}
}

// peer counts a round about a peer, whose findings are correlated. started is when the peer's
// gateway last started; zero if unknown.
func (m *recent) peer(list []verdict.Finding, started, now time.Time) {
	for _, f := range list {
		m.record(f.Ref(), unsaid).add(f, started, now)
	}
	for ref := range m.checks {
		if _, there := verdict.Find(list, ref); !there { // it is not tried any more
			delete(m.checks, ref)
		}
	}
}

// own counts a round of this gateway's checks. Some exist only while they fail.
func (m *recent) own(list []verdict.Finding, now time.Time) {
	said := works
	if m.checks == nil { // nothing was known before this round
		said = unsaid
	}
	for _, f := range list {
		m.record(f.Ref(), said).add(f, time.Time{}, now)
	}
	for ref, r := range m.checks {
		if _, there := verdict.Find(list, ref); there {
			continue
		}
		if r.add(verdict.Finding{Outcome: api.OK, At: now}, time.Time{}, now); r.lapse == nil {
			delete(m.checks, ref)
		}
	}
}

// record returns the record of a check. A new one has the given outcome.
func (m *recent) record(ref string, said outcome) *record {
	if m.checks == nil {
		m.checks = map[string]*record{}
	}
	r := m.checks[ref]
	if r == nil {
		if r = (&record{said: said}); len(m.checks) < maxRecent {
			m.checks[ref] = r
		}
	}
	return r
}

// add counts a finding, unless it is an earlier round's. A failure is remembered only if the check
// worked just before: a gateway that starts offers its services one by one.
func (r *record) add(f verdict.Finding, started, now time.Time) {
	if r.lapse != nil && r.lapse.past(now) {
		r.lapse = nil
	}
	if !f.At.After(r.at) {
		return
	}
	was := r.said
	r.at, r.said = f.At, outcomeOf(f)
	switch {
	case r.said == fails && r.before == nil: // an outage begins
		if r.lapse == nil && was == works {
			r.lapse = &lapse{first: now}
		}
		if r.lapse != nil {
			before := *r.lapse
			r.before = &before
		}
	case f.Because != nil && r.before != nil: // it is another's
		r.lapse, r.before = r.before, nil
	}
	if r.lapse != nil && r.said != unsaid {
		r.lapse.add(f, was, r.said, r.before, started, now)
	}
	if r.said == works {
		r.before = nil
	}
}

// add counts a finding that says is; was is what the one before it said. before is nil if there was
// no outage.
func (l *lapse) add(f verdict.Finding, was, is outcome, before *lapse, started, now time.Time) {
	n := l.slot(now)
	t := &l.slots[n%recentSlots]
	if t.slot != n {
		*t = tally{slot: n}
	}
	t.checks++
	if is == fails {
		t.failures++
		l.failed(f, was)
		return
	}
	restarted := before != nil && started.After(l.began.Add(-recentApart)) && l.restarts+1 < recentStarts
	if restarted {
		l.restarts++
		l.again = before.again
	}
	if was != works && (!l.back.IsZero() || before != nil && !restarted) {
		l.back = f.At
	}
}

// failed remembers a failure. Of one outage, the finding that is sure counts.
func (l *lapse) failed(f verdict.Finding, was outcome) {
	at := f.At
	switch {
	case was != fails:
		l.began = at
		l.again = l.again || was == works && !l.back.IsZero() && at.Sub(l.back) >= recentApart
	case f.Sure == api.Tentative && l.last.Sure != api.Tentative:
		f = l.last
	}
	l.last = f
	l.last.At = at
}

// past reports whether the last failure was too long ago to matter. The monotonic clock may not
// count the time that a machine sleeps, and the wall clock may be set back.
func (l *lapse) past(now time.Time) bool {
	return max(now.Sub(l.last.At), now.Round(0).Sub(l.last.At)) >= recentFor
}

// slot returns the number of the slot that it is now.
func (l *lapse) slot(now time.Time) int64 { return int64(now.Sub(l.first) / recentSlot) }

// tally returns how many checks there were since the first failure, or in as many slots, and how
// many of them failed.
func (l *lapse) tally(now time.Time) (checks, failures int) {
	n := l.slot(now)
	for _, t := range l.slots {
		if n-recentSlots < t.slot && t.slot <= n {
			checks, failures = checks+t.checks, failures+t.failures
		}
	}
	return checks, failures
}

// suspects reports whether a check failed recently, so that the next rounds must not be skipped, and
// whether one of a service did.
func (m *recent) suspects(now time.Time) (any, service bool) {
	for _, r := range m.checks {
		if l := r.lapse; l != nil && !l.past(now) {
			any, service = true, service || l.last.Target != api.ServiceGateway
		}
	}
	return any, service
}

// shown returns the findings of a round as they are shown. Of a check that comes and goes, a
// warning says so while it works, and its own finding while something is wrong.
func (m *recent) shown(list []verdict.Finding, now time.Time) []verdict.Finding {
	out, copied := list, false
	for _, ref := range slices.Sorted(maps.Keys(m.checks)) {
		l := m.lapse(ref, now)
		if l == nil {
			continue
		}
		if !copied {
			out, copied = slices.Clone(list), true
		}
		i := slices.IndexFunc(out, func(f verdict.Finding) bool { return f.Ref() == ref })
		switch {
		case i < 0 && l.last.Direction != api.DirectionOwn: // it has not finished, or is not tried any more
		case i < 0: // it exists only while it fails
			f := l.last
			f.Outcome, f.Stages, f.At, f.Sure = api.OK, nil, m.checks[ref].at, ""
			out = append(out, l.over(f, now))
		case out[i].Outcome == api.OK:
			out[i] = l.over(out[i], now)
		case out[i].Because == nil && out[i].Faulty():
			out[i] = l.within(out[i], now)
		}
	}
	return out
}

// lapse returns what a check failed with that comes and goes; nil for others.
func (m *recent) lapse(ref string, now time.Time) *lapse {
	if r := m.checks[ref]; r != nil && r.lapse != nil && r.lapse.again && !r.lapse.past(now) {
		return r.lapse
	}
	return nil
}

// over returns the finding of a check that works now. It may rest on this host's network, which then
// comes and goes, too. Other checks may fail for good, and would hide it.
func (l *lapse) over(f verdict.Finding, now time.Time) verdict.Finding {
	p := l.last.Params()
	rests := slices.DeleteFunc(slices.Clone(l.last.Rests), func(ref string) bool { return ref != verdict.Own(NameNetwork) })
	f.Outcome, f.Code, f.Stage, f.Rests, f.Since, f.Args, f.Told = api.Warning, catalogue.Intermittent, l.last.Stage, rests, time.Time{}, &p, nil
	if l.last.Told != nil {
		told, p := f, l.last.Told.Params()
		told.Stage, told.Args = l.last.Told.Stage, &p
		f.Told = &told
	}
	return l.within(f, now)
}

// within adds to a finding how often the check failed, and with which code if that is another. The
// peer is told the same of what it was told.
func (l *lapse) within(f verdict.Finding, now time.Time) verdict.Finding {
	quote := func(f, last verdict.Finding) verdict.Finding {
		return f.With(func(p *catalogue.Params) {
			if f.Code != last.Code {
				p.RootCode = last.Code
			}
			p.Checks, p.Failures = l.tally(now)
			p.LastFailure = max(now.Sub(l.last.At), 0)
		})
	}
	out := quote(f, l.last)
	if f.Told != nil || l.last.Told != nil {
		told := quote(f.ForPeer(), l.last.ForPeer())
		out.Told = &told
	}
	return out
}
