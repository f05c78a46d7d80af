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

func (t *tally) add(lost, delivered float64) { t.lost += lost; t.all += lost + delivered }

func (t *tally) scale(f float64) { t.lost *= f; t.all *= f }

func (t *tally) delivered() float64 { return t.all - t.lost }

// remember adds to a count over a long time.
func (t *tally) remember(round tally) {
	t.add(round.lost, round.delivered())
	if t.all > 2*ambientMemory {
		t.scale(0.5)
	}
}

// rate is the share that was lost, as far as it is believed.
func (t *tally) rate() float64 { return max(t.lost, 0) / (t.all + ambientDoubt) }

// share is the share that was lost, for people.
func (t *tally) share() float64 { return min(max(t.lost, 0)/max(t.all, 1), 1) }

// exceeds reports whether t lost more than a rate, with a doubt of three standard deviations
// of what certain of it is Poisson's: it is asked each round trip.
func (t *tally) exceeds(rate, certain float64) bool {
	return t.lost >= 1 && t.lost > rate*t.all+3*math.Sqrt(max(certain, 0)*t.all)
}

// lossJudge tells loss by congestion from loss that is always there (radio links, bad
// cables, rate limiters' neighbours). The ambient loss is learned from packets that met no
// queue; loss beside a queue is congestion if it is more than that. Learning in rounds
// that show a queue would take congestion for the path's nature, and two flows would teach
// each other.
type lossJudge struct {
	free  tally // without a queue, of a long time
	round tally // this round's
	flown tally // this round's and the one's before: what is found lost now may have flown in that
	all   tally // whether with a queue or without, of as long
	queue tally // of this round and some before, beside a queue
	probe tally // since a probe for more began

	lost, whole float64 // packets in all, for people
}

// add takes in packets.
func (j *lossJudge) add(lost, delivered float64) {
	j.round.add(lost, delivered)
	j.flown.add(lost, delivered)
	j.probe.add(lost, delivered)
	j.lost += lost
	j.whole += lost + delivered
}

// endRound takes in what the round was like: queued says that its shortest round trip shows
// a queue, steady that no more was sent than the path delivers. (A single long round trip
// beside a loss says nothing: on a radio link there always is one.)
func (j *lossJudge) endRound(queued, steady bool) {
	j.queue.scale(tallyKept)
	if queued {
		j.queue.add(j.round.lost, j.round.delivered())
	}
	if !steady {
		return
	}
	j.all.remember(j.round)
	if !queued {
		j.free.remember(j.round)
	}
}

// ambient is the share of packets that are lost without a queue. It cannot be more than
// what is lost at all.
func (j *lossJudge) ambient() float64 {
	return min(j.free.rate(), j.all.rate(), ambientMost)
}

// congested reports whether a queue has overflowed.
func (j *lossJudge) congested() bool {
	ambient := j.ambient()
	return j.queue.exceeds(max(ambient, lossNoticed), ambient)
}

// overran reports whether a first growth has.
func (j *lossJudge) overran() bool {
	return j.flown.lost >= 6 && j.flown.lost > overrun*j.flown.all
}

// refused reports whether the present probe loses what the path without it doesn't: a rate
// limiter drops without a queue.
func (j *lossJudge) refused() bool {
	return j.probe.lost >= 3 && j.probe.exceeds(j.ambient()+lossTolerated, j.ambient())
}

// forgive forgets what was counted beside a queue, because it was answered.
func (j *lossJudge) forgive() { j.queue, j.probe = tally{}, tally{} }
