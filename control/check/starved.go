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
	// starvedBy is how late the process must have been in all, and starvedShare the part of the
	// time, in percent, for what took long to say nothing of others.
	starvedBy    = 500 * time.Millisecond
	starvedShare = 25
)

// delay is how long this process waited for a processor while something was checked.
type delay struct{ waited, of time.Duration }

// starved reports whether what took long may have done so by that.
func (d delay) starved() bool { return d.waited >= starvedBy && d.waited*100 >= d.of*starvedShare }

// watchDelay begins to look; the function it gives ends that.
func watchDelay() (end func() delay) {
	stop := make(chan struct{})
	var d delay
	var looking sync.WaitGroup
	began := time.Now()
	looking.Go(func() {
		tick := time.NewTimer(lookEvery)
		defer tick.Stop()
		for last := began; ; {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			now := time.Now()
			d.waited += max(0, now.Sub(last)-lookEvery)
			last = now
			tick.Reset(lookEvery)
		}
	})
	return func() delay {
		close(stop)
		looking.Wait()
		d.of = time.Since(began)
		return d
	}
}

// byTime are the codes of what took long or was not answered in time. Of a process that does not
// get the processor they say nothing but that.
var byTime = []catalogue.Code{
	catalogue.Unanswered, catalogue.HandshakeStale, catalogue.PingLost, catalogue.PacketsLost, catalogue.AuthTimeout, catalogue.APIServerTimeout,
	catalogue.APIServerSlow, catalogue.UpstreamTimeout, catalogue.StunUnreachable,
}

// blamed puts what depends on time behind the check of this process, if it was starved. It gives the
// delay if that is the reason for anything.
func (d delay) blamed(list []verdict.Finding) (by delay) {
	if !d.starved() {
		return by
	}
	for i, f := range list {
		if slices.Contains(byTime, f.Code) && (f.Sure != api.Likely || f.Code != catalogue.HandshakeStale) {
			list[i].Rests = append([]string{verdict.Own(NameDelay)}, f.Rests...)
			by = d
		}
	}
	return by
}

// starvation is the finding of a process that waited so long while it checked what rests on it.
func starvation(waited time.Duration) []verdict.Finding {
	if waited == 0 {
		return nil
	}
	p := catalogue.Params{Inbound: true}
	p.Took = waited
	return []verdict.Finding{beginOwn(NameDelay).fail(api.Warning, "cpu", catalogue.ProcessStarved, p)}
}
