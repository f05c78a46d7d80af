package sender

import "math"

const (
	// ambientMost bounds the loss that is put up with: beyond it the path is taken for
	// congested, whatever the round trips say.
	ambientMost = 0.08
	// ambientMemory is over how many packets ambient loss is averaged, at least: 1 % of
	// them are 40.
	ambientMemory = 4000
	// ambientDoubt is how many packets without loss it is averaged with.
	ambientDoubt = 300
	// lossTolerated is the loss beyond the ambient one that is not congestion yet where no queue
	// is seen (draft-ietf-ccwg-bbr, LossThresh).
	lossTolerated = 0.02
	// lossNoticed is the same beside a queue: there CUBIC gives way for one packet.
	lossNoticed = 0.0015
	// overrun is the loss by which a first, exponential growth has met the end of a queue:
	// at 2.77 times the rate it is 64 %.
	overrun = 0.1
	// tallyKept is what of a round's count is kept in the next.
	tallyKept = 0.75
)

// tally counts packets.
type tally struct{ lost, all float64 }

func (t *tally) add(o tally) { t.lost += o.lost; t.all += o.all }

func (t *tally) scale(f float64) { t.lost *= f; t.all *= f }

func (t *tally) delivered() float64 { return t.all - t.lost }

// remember adds to a count over a long time.
func (t *tally) remember(round tally) {
	t.add(round)
	if t.all > 2*ambientMemory {
		t.scale(0.5)
	}
}

// rate is the share that was lost, as far as it is believed.
func (t *tally) rate() float64 { return max(t.lost, 0) / (t.all + ambientDoubt) }

// share is the share that was lost, for people.
func (t *tally) share() float64 { return min(max(t.lost, 0)/max(t.all, 1), 1) }

// exceeds reports whether t lost more than a rate, with a doubt of three standard deviations
// of what is lost by chance, whose variance is given by packet: it is asked each round trip.
func (t *tally) exceeds(rate, variance float64) bool {
	return t.lost >= 1 && t.lost > rate*t.all+3*math.Sqrt(variance*t.all)
}

// dispersion measures the variance of losses in what it would be if each packet was lost by itself: those
// of radio links come in bursts.
type dispersion struct{ squares, expected float64 }

const (
	// dispersionDoubt is how many losses, one by one, it begins with, and dispersionMemory over
	// how many it is averaged.
	dispersionDoubt, dispersionMemory = 20, 200
	// mostDispersed bounds it: bursts of 16 on average have 32.
	mostDispersed = 32
)

// add takes in how many packets of a round trip were lost, and how many could be expected.
func (d *dispersion) add(lost, expected float64) {
	d.squares += (lost - expected) * (lost - expected)
	if d.expected += expected; d.expected > dispersionMemory {
		d.squares, d.expected = d.squares/2, d.expected/2
	}
}

// index is variance over mean.
func (d *dispersion) index() float64 {
	return min(max((d.squares+dispersionDoubt)/(d.expected+dispersionDoubt), 1), mostDispersed)
}

// lossJudge tells loss by congestion from loss that is always there (radio links, bad
// cables, rate limiters' neighbours). The ambient loss is learned from packets that met no
// queue; loss beside a queue is congestion if it is more than that. Learning in rounds
// that show a queue would take congestion for the path's nature, and two flows would teach
// each other.
type lossJudge struct {
	free   tally      // without a queue, of a long time
	round  tally      // this round's
	bursts dispersion // of free
	flown  tally      // this round's and the one's before: what is found lost now may have flown in that
	all    tally      // whether with a queue or without, of as long
	queue  tally      // of this round and some before, beside a queue
	probe  tally      // since a probe for more began

	lost, whole float64 // packets in all, for people
}

// add takes in packets.
func (j *lossJudge) add(t tally) {
	j.round.add(t)
	j.flown.add(t)
	j.probe.add(t)
	j.lost += t.lost
	j.whole += t.all
}

// endRound takes in what the round was like: queued says that its shortest round trip shows
// a queue, steady that no more was sent than the path delivers. (A single long round trip
// beside a loss says nothing: on a radio link there always is one.)
func (j *lossJudge) endRound(queued, steady bool) {
	j.queue.scale(tallyKept)
	if queued {
		j.queue.add(j.round)
	}
	if !steady {
		return
	}
	j.all.remember(j.round)
	if !queued {
		j.bursts.add(j.round.lost, j.ambient()*j.round.all)
		j.free.remember(j.round)
	}
}

// ambient is the share of packets that are lost without a queue. It cannot be more than
// what is lost at all.
func (j *lossJudge) ambient() float64 {
	return min(j.free.rate(), j.all.rate(), ambientMost)
}

// variance is that of ambient loss, by packet.
func (j *lossJudge) variance() float64 { return max(j.ambient(), 0) * j.bursts.index() }

// congested reports whether a queue has overflowed.
func (j *lossJudge) congested() bool {
	return j.queue.exceeds(max(j.ambient(), lossNoticed), j.variance())
}

// overran reports whether a first growth has. Where no queue is seen there is a rate limiter, or a radio
// link lost many packets in a row.
func (j *lossJudge) overran(queued bool) bool {
	variance := 0.0
	if !queued {
		variance = overrun * mostDispersed
	}
	return j.flown.lost >= 6 && j.flown.exceeds(overrun, variance)
}

// refused reports whether the present probe loses what the path without it doesn't: a rate
// limiter drops without a queue.
func (j *lossJudge) refused() bool {
	return j.probe.lost >= 3 && j.probe.exceeds(j.ambient()+lossTolerated, j.ambient())
}

// forgive forgets what was counted beside a queue, because it was answered.
func (j *lossJudge) forgive() { j.queue, j.probe = tally{}, tally{} }
