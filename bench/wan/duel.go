package wan

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/postern-dev/postern/bench"
	"github.com/postern-dev/postern/bench/load"
)

const (
	// duelRate and duelRTT are those of the bottleneck: the link of the keystrokes.
	duelRate = keysRate
	duelRTT  = keysRTT
	// duelHeadStart is long enough to find the rate.
	duelHeadStart = 5 * time.Second
	// duelWarmup is the time that both have before the window. CUBIC needs 8 s to get back to a
	// window of the path and a queue of 400 ms (RFC 9438, section 4.2: K is the third root of
	// 0.3/0.4 of 760 packets).
	duelWarmup = 15 * time.Second
	duelWindow = 45 * time.Second
	// duelRuns is two in each order.
	duelRuns = 4
	// duelStartup is for starting the processes and their tunnels.
	duelStartup = 5 * time.Second
)

// duelQueues are the bottleneck's: from six packets to bufferbloat.
var duelQueues = []time.Duration{
	4 * time.Millisecond, 15 * time.Millisecond, 40 * time.Millisecond, 105 * time.Millisecond, 400 * time.Millisecond,
}

// The kinds of duels: what shares the bottleneck with the subject's stream.
const (
	duelAlone   = "alone"   // nothing
	duelStreams = "streams" // another stream in the same tunnel
	duelSelf    = "self"    // one in another tunnel of the same subject
	duelCUBIC   = "cubic"   // the kernel's
	duelBBR     = "bbr"     // the kernel's
)

// rivals are the subjects of the other tunnel by kind of duel; self is the same subject, and ""
// means none.
var rivals = []struct{ kind, subject string }{
	{duelAlone, ""}, {duelStreams, ""}, {duelSelf, self}, {duelCUBIC, bench.WireGuardCUBIC}, {duelBBR, bench.WireGuardBBR},
}

// self stands for the subject.
const self = "self"

// duel describes what shares the bottleneck.
type duel struct {
	rival string // a subject's name, self, or empty for none
	// headStart is the time by which one tunnel begins earlier: the rival's, and in every other
	// round the subject's. Both have startup before their warm-up.
	headStart, startup time.Duration
}

// Units of a duel's values, in a [load.Result].
const (
	unitShare = "share"      // share of what all flows get
	unitJain  = "jain-index" // (Σx)²/(n·Σx²) of all flows
	unitDrops = "path-drops" // share of the subject's packets that the bottleneck dropped
	unitUse   = "path-use"   // share of the bottleneck's rate, headers included
)

var (
	shareMetric = ratioMetric("share of the bottleneck", unitShare, "share", bench.Higher)
	jainMetric  = ratioMetric("Jain's index", unitJain, "Jain", bench.Higher)
	useMetric   = ratioMetric("use of the bottleneck", unitUse, "use", bench.Higher)
	dropsMetric = func() bench.Metric {
		m := ratioMetric("packets that the bottleneck drops", unitDrops, "dropped %", bench.Lower)
		m.Scale, m.Zero = 100, true
		return m
	}()
)

func ratioMetric(name, unit, heading string, better bench.Direction) bench.Metric {
	return bench.Metric{
		Name: name, Unit: unit, Better: better, Of: func(r load.Result) float64 { return r.Values[unit] },
		Scale: 1, Digits: 2, TableUnit: heading,
	}
}

func duelCell(kind string, queue time.Duration) string {
	return fmt.Sprintf("duel/%s/%dms", kind, queue.Milliseconds())
}

func duelScenarios() (out []Scenario) {
	for _, rival := range rivals {
		for _, queue := range duelQueues {
			s := named(duelCell(rival.kind, queue), "Flows that share a bottleneck of 20 Mbit/s, 40 ms, duel/who besides/queue",
				bench.WireGuardBBR, bench.WireGuardCUBIC)
			s.asked = []string{bench.WireGuardBBR, bench.WireGuardCUBIC} // their own results are not postern's concern
			s.Spec = load.Spec{Streams: 1}
			s.Metrics = []bench.Metric{throughput(), shareMetric, jainMetric, dropsMetric, useMetric}
			switch rival.kind {
			case duelAlone:
				s.Metrics = []bench.Metric{throughput(), dropsMetric, useMetric}
			case duelStreams:
				s.Spec.Streams = 2
				s.Metrics = []bench.Metric{throughput(), jainMetric, dropsMetric, useMetric}
			}
			s.Path = Path{RTT: duelRTT, Rate: duelRate, Queue: queue}
			s.Runs, s.warmup, s.window = duelRuns, duelWarmup, duelWindow
			s.duel = &duel{rival.subject, duelHeadStart, duelStartup}
			out = append(out, s)
		}
	}
	return out
}

// run makes the runs of the subject and its rival, if any, at the same time over a forwarder's
// path, and measures the path in their window. The run with index behind begins later.
func (d *duel) run(ctx context.Context, f *Forwarder, p Path, spec load.Spec, runs []runFunc, behind int) (load.Result, error) {
	begin := time.Now()
	spec.From = begin.Add(d.headStart + d.startup + spec.Warmup)
	var (
		results  = make([]load.Result, len(runs))
		from, to Traffic
		all      sync.WaitGroup
	)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	together := func(at time.Time, do func() error) {
		all.Go(func() {
			if sleepUntil(ctx, at) {
				if err := do(); err != nil {
					cancel(err) // the first one counts
				}
			}
		})
	}
	for i, run := range runs {
		spec, at := spec, begin
		spec.Via = f.At[i].String()
		if i > 0 {
			spec.CPUProfile, spec.HeapProfile = "", "" // profiles are only those of the subject
		}
		if len(runs) > 1 && i == behind {
			at = begin.Add(d.headStart)
		}
		together(at, func() (err error) {
			results[i], err = run(ctx, spec)
			return err
		})
	}
	together(spec.From, func() (err error) {
		if from, err = f.Traffic(); err == nil && sleepUntil(ctx, spec.From.Add(spec.Duration)) {
			to, err = f.Traffic()
		}
		return err
	})
	all.Wait()
	if ctx.Err() != nil {
		return load.Result{}, context.Cause(ctx)
	}
	r := results[0]
	if r.Values == nil {
		r.Values = make(map[string]float64)
	}
	maps.Copy(r.Values, shares(results))
	maps.Copy(r.Values, bottleneck(p, spec.Duration, from, to))
	return r, nil
}

// shares computes how the flows of the subject, which are first, and its rival shared.
func shares(results []load.Result) map[string]float64 {
	var n, sum, squares float64
	for _, r := range results {
		for _, bytes := range r.StreamBytes {
			n, sum, squares = n+1, sum+float64(bytes), squares+float64(bytes)*float64(bytes)
		}
	}
	return map[string]float64{unitShare: float64(results[0].Bytes) / sum, unitJain: sum * sum / (n * squares)}
}

// bottleneck computes what happened to the packets of the sending ends between two readings.
func bottleneck(p Path, window time.Duration, from, to Traffic) map[string]float64 {
	var bits float64
	for i, t := range to.Tunnels {
		passed := t.Forward.minus(from.Tunnels[i].Forward)
		bits += float64(passed.Bytes+passed.Forwarded*headers) * 8
	}
	own := to.Tunnels[0].Forward.minus(from.Tunnels[0].Forward)
	return map[string]float64{
		unitDrops: float64(own.Overflow) / float64(max(own.Forwarded+own.Lost+own.Policed+own.Overflow, 1)),
		unitUse:   bits / window.Seconds() / p.Rate,
	}
}

// sleepUntil waits until a time; false if the context ends first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
