package check

import (
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameDelay is the check of whether this process gets the processor when it wants it.
const NameDelay = "resources-delay"

const (
	// lookEvery is how often it is looked whether time passes as it should, while something is
	// checked.
	lookEvery = 100 * time.Millisecond
	// starvedBy is how late the process must have been within starvedIn for what took long to say
	// nothing of others. The rest of a check that takes longer may have passed in peace.
	starvedBy = 500 * time.Millisecond
	starvedIn = 2 * time.Second
	// starvedFor is for how long servers that are asked all the time are not blamed after that.
	starvedFor = 30 * time.Second
)

// delay is how long this process waited for a processor, at the worst within starvedIn.
type delay time.Duration

// starved reports whether what took long may have done so by that.
func (d delay) starved() bool { return d >= delay(starvedBy) }

// starved is when this process was so last, and by how much.
type starved struct {
	by delay
	at time.Time
}

// since is that delay if it may still show.
func (s starved) since(now time.Time) delay {
	if now.Sub(s.at) >= starvedFor {
		return 0
	}
	return s.by
}

// presence are the last moments at which this process was served, as far as it was looked: as many
// as a peer is waited for.
type presence struct {
	mu   sync.Mutex
	at   [silence / lookEvery]time.Time
	last int
}

func (p *presence) saw(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.at[p.last]) >= lookEvery { // several may look at a time
		p.last = (p.last + 1) % len(p.at)
		p.at[p.last] = now
	}
}

// since is since when this process was served for long enough to tell what is silent; zero while
// that is not known.
func (p *presence) since() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[(p.last+1)%len(p.at)]
}

// noted remembers a delay by which this process was starved.
func (r *Runner) noted(d delay) delay {
	if d.starved() {
		r.own.mu.Lock()
		r.own.starved = starved{d, time.Now()}
		r.own.mu.Unlock()
	}
	return d
}

// watchDelay begins to look; the function it gives ends that.
func (r *Runner) watchDelay() (end func() delay) {
	stop := make(chan struct{})
	var worst delay
	var looking sync.WaitGroup
	last := time.Now()
	looking.Go(func() {
		tick := time.NewTimer(lookEvery)
		defer tick.Stop()
		for waited, of := delay(0), time.Duration(0); ; {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			passed := time.Since(last)
			last = last.Add(passed)
			if passed < 2*lookEvery {
				r.present.saw(last)
			}
			waited += delay(max(0, passed-lookEvery))
			worst = max(worst, waited)
			if of += passed; of >= starvedIn {
				waited, of = 0, 0
			}
			tick.Reset(lookEvery)
		}
	})
	return func() delay {
		close(stop)
		looking.Wait()
		return worst
	}
}

var (
	// silences are the codes of what nothing answers, however often it is asked.
	silences = []catalogue.Code{
		catalogue.Unanswered, catalogue.HandshakeStale, catalogue.NotHeardByPeer, catalogue.PingLost,
		catalogue.StunUnreachable, catalogue.TurnUnreachable, catalogue.NothingAnswers,
	}
	// delays are those of what took long or was not finished in time.
	delays = []catalogue.Code{
		catalogue.PacketsLost, catalogue.PathMTUSmall, catalogue.AuthTimeout, catalogue.APIServerTimeout,
		catalogue.APIServerSlow, catalogue.UpstreamTimeout,
	}
)

// silentSince tells of what is silent since when it is, by what was found before; what was not found
// silent then is since a time.
func silentSince(began time.Time, list, before []verdict.Finding) {
	for i, f := range list {
		if !slices.Contains(silences, f.Code) {
			continue
		}
		list[i].Since = began
		if was, _ := verdict.Find(before, f.Ref()); !was.Since.IsZero() {
			list[i].Since = was.Since
		}
	}
}

// blamed puts what depends on time behind the check of this process, if it was starved. Of a process
// that does not get the processor it says nothing but that, unless it has been silent for as long as
// the process was served well enough: see [presence]. It gives the delay if that is the reason for
// anything.
func (d delay) blamed(list []verdict.Finding, served time.Time) (by delay) {
	if !d.starved() {
		return by
	}
	for i, f := range list {
		if slices.Contains(delays, f.Code) || slices.Contains(silences, f.Code) && !f.Since.Before(served) {
			list[i].Rests = append([]string{verdict.Own(NameDelay)}, f.Rests...)
			by = d
		}
	}
	return by
}

// starvation is the finding of a process that waited so long while it checked what rests on it.
func starvation(waited delay) []verdict.Finding {
	if waited == 0 {
		return nil
	}
	p := catalogue.Params{Inbound: true}
	p.Took = time.Duration(waited)
	return []verdict.Finding{beginOwn(NameDelay).fail(api.Warning, "cpu", catalogue.ProcessStarved, p)}
}
