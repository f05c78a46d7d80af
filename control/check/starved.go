package check

import (
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameDelay is the check of whether this process gets CPU time when it needs it.
const NameDelay = "resources-delay"

const (
	// lookEvery is how often, during a check, to look whether time passes as it should.
	lookEvery = 100 * time.Millisecond
	// starvedBy is how late the process must have been within starvedIn for slow results to say
	// nothing about others. In a longer check the rest of the time may have been fine.
	starvedBy = 500 * time.Millisecond
	starvedIn = 2 * time.Second
	// starvedFor is how long periodically queried servers are not blamed after that.
	starvedFor = 30 * time.Second
)

// delay is the longest time within starvedIn that this process waited for a processor.
type delay time.Duration

// starved reports whether that may explain slow results.
func (d delay) starved() bool { return d >= delay(starvedBy) }

// starved is when this process was last starved, and by how much.
type starved struct {
	by delay
	at time.Time
}

// since returns that delay if it may still have an effect.
func (s starved) since(now time.Time) delay {
	if now.Sub(s.at) >= starvedFor {
		return 0
	}
	return s.by
}

// presence holds the last moments at which this process ran, as far as it looked: as many as cover
// the wait for a peer.
type presence struct {
	mu   sync.Mutex
	at   [silence / lookEvery]time.Time
	last int
}

func (p *presence) saw(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.at[p.last]) >= lookEvery { // several goroutines may look at once
		p.last = (p.last + 1) % len(p.at)
		p.at[p.last] = now
	}
}

// since returns since when this process has had enough CPU time to know what is silent; zero if
// unknown.
func (p *presence) since() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[(p.last+1)%len(p.at)]
}

// noted records a delay that starved this process.
func (r *Runner) noted(d delay) delay {
	if d.starved() {
		r.own.mu.Lock()
		r.own.starved = starved{d, time.Now()}
		r.own.mu.Unlock()
	}
	return d
}

// watchDelay starts looking; the returned function stops it.
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

// delays are the codes for what took long or did not finish in time.
var delays = []catalogue.Code{
	catalogue.PacketsLost, catalogue.PathSlow, catalogue.PathMTUSmall, catalogue.AuthTimeout, catalogue.APIServerTimeout,
	catalogue.APIServerSlow, catalogue.UpstreamTimeout,
}

// blamed makes findings that depend on time follow from the check of this process, if it was
// starved. Without CPU time it can say nothing about others, unless they have been silent for as
// long as the process did run well: see [presence]. It returns the delay if that is the reason for
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

// starvation is the finding about a process that waited so long during checks that rest on it.
func starvation(waited delay) []verdict.Finding {
	if waited == 0 {
		return nil
	}
	p := catalogue.Params{Inbound: true}
	p.Took = time.Duration(waited)
	return []verdict.Finding{beginOwn(NameDelay).fail(api.Warning, "cpu", catalogue.ProcessStarved, p)}
}
