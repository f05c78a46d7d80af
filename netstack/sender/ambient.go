package sender

import "math"

const (
	// ambientMost bounds the ambient loss: a path that loses more counts as congested, whatever the
	// round trips show.
	ambientMost = 0.08
	// ambientMemory is the least number of packets over which ambient loss is averaged. At 1 %, 40
	// of them are lost.
	ambientMemory = 4000
	// ambientDoubt is the number of packets without loss that the average starts with.
	ambientDoubt = 300
	// lossTolerated is the loss above the ambient one that is not yet congestion if no queue is
	// seen (draft-ietf-ccwg-bbr, LossThresh).
	lossTolerated = 0.02
	// lossNoticed is the same beside a queue, where CUBIC backs off for a single packet.
	lossNoticed = 0.0015
	// overrun is the loss at which the initial exponential growth has filled a queue. At 2.77 times
	// the rate the loss is 64 %.
	overrun = 0.1
	// significant is by how many standard deviations losses must differ from what is expected. It is
	// that many because the check is made each round trip.
	significant = 3
	// tallyKept is the part of a round's count that is kept in the next.
	tallyKept = 0.75
)

// tally counts packets.
type tally struct{ lost, all float64 }

func (t *tally) add(o tally) { t.lost += o.lost; t.all += o.all }

func (t *tally) scale(f float64) { t.lost *= f; t.all *= f }

func (t *tally) delivered() float64 { return t.all - t.lost }

// remember adds a round to a long-term count.
func (t *tally) remember(round tally) {
	t.add(round)
	if t.all > 2*ambientMemory {
		t.scale(0.5)
	}
}

// rate returns the share that was lost, discounted by ambientDoubt.
func (t *tally) rate() float64 { return max(t.lost, 0) / (t.all + ambientDoubt) }

// atMost returns the highest loss rate that t is consistent with, if losses have this index of
// dispersion.
func (t *tally) atMost(index float64) float64 {
	lost := max(t.lost, 0)
	return (lost + 1 + significant*math.Sqrt(index*(lost+1))) / max(t.all, 1)
}

// share returns the share that was lost, for display.
func (t *tally) share() float64 { return min(max(t.lost, 0)/max(t.all, 1), 1) }

// exceeds reports whether t lost significantly more than rate. variance is per packet.
func (t *tally) exceeds(rate, variance float64) bool {
	return t.lost >= 1 && t.lost > rate*t.all+significant*math.Sqrt(variance*t.all)
}

// dispersion measures the variance of losses relative to that of independent losses. Radio links
// lose packets in bursts.
type dispersion struct{ squares, expected float64 }

const (
	// dispersionDoubt is the number of independent losses that the average starts with, and
	// dispersionMemory the number it is averaged over.
	dispersionDoubt, dispersionMemory = 20, 200
	// mostDispersed bounds the index. Bursts of 16 packets on average have 32.
	mostDispersed = 32
)

// add records how many packets of a round trip were lost, and how many were expected to be.
func (d *dispersion) add(lost, expected float64) {
	d.squares += (lost - expected) * (lost - expected)
	if d.expected += expected; d.expected > dispersionMemory {
		d.squares, d.expected = d.squares/2, d.expected/2
	}
}

// index returns variance over mean.
func (d *dispersion) index() float64 {
	return min(max((d.squares+dispersionDoubt)/(d.expected+dispersionDoubt), 1), mostDispersed)
}

// lossJudge distinguishes loss by congestion from loss that is always there (radio links, bad
// cables, neighbours of rate limiters). It learns the ambient loss from packets that met no queue.
// Loss beside a queue is congestion if it exceeds the ambient loss. Where round trips differ too much
// to show a queue, losses after delayed packets are compared with those after prompt ones. Learning
// in rounds with a queue would take congestion for a property of the path, and two flows would
// mislead each other.
type lossJudge struct {
	noQueue   tally      // long-term, without a queue
	round     tally      // this round's
	bursts    dispersion // after prompt packets
	twoRounds tally      // this round and the one before: what is found lost now may have left then
	all       tally      // long-term, with a queue or without
	queue     tally      // this round and some before, beside a queue
	probe     tally      // since the probe for bandwidth began

	roundByWait, byWait byWait // this round's, and long-term

	lost, whole float64 // packets in total, for display
}

// add records packets.
func (j *lossJudge) add(t tally) {
	j.round.add(t)
	j.twoRounds.add(t)
	j.probe.add(t)
	j.lost += t.lost
	j.whole += t.all
}

// effort is how much was sent in a round, compared with what the path delivers.
type effort uint8

const (
	unclear effort = iota // far more, or the losses of far more are found
	varied                // less, or somewhat more
	steady                // no more
)

// endRound records the round. queued says that its shortest round trip shows a queue. A single long
// round trip beside a loss says nothing, because on a radio link there always is one.
func (j *lossJudge) endRound(queued bool, sent effort) {
	j.queue.scale(tallyKept)
	switch {
	case queued:
		j.queue.add(j.round)
	case sent == steady && j.queueDrops():
		j.queue.add(j.roundByWait[delayed])
	}
	if sent == unclear {
		return
	}
	j.byWait.remember(j.roundByWait)
	if sent != steady {
		return
	}
	j.bursts.add(j.roundByWait[prompt].lost, j.ambient()*j.roundByWait[prompt].all)
	j.all.remember(j.round)
	if !queued {
		j.noQueue.remember(j.round)
	}
}

// nextRound begins a round.
func (j *lossJudge) nextRound() { j.twoRounds, j.round, j.roundByWait = j.round, tally{}, byWait{} }

// forgetWaits starts over, because the base round trip has changed.
func (j *lossJudge) forgetWaits() { j.roundByWait, j.byWait = byWait{}, byWait{} }

// queueDrops reports whether a queue drops packets, as far as their delays show.
func (j *lossJudge) queueDrops() bool { return j.byWait.queueDrops(j.bursts.index()) }

// ambient returns the share of packets that are lost without a queue. It cannot exceed the total
// loss, nor the likely loss after prompt packets.
func (j *lossJudge) ambient() float64 {
	return min(j.noQueue.rate(), j.all.rate(), j.afterPrompt(), ambientMost)
}

// afterPrompt returns the highest loss after prompt packets that is likely.
func (j *lossJudge) afterPrompt() float64 { return j.byWait[prompt].atMost(j.bursts.index()) }

// variance returns the variance of ambient loss, per packet.
func (j *lossJudge) variance() float64 { return max(j.ambient(), 0) * j.bursts.index() }

// congested reports whether a queue has overflowed.
func (j *lossJudge) congested() bool {
	return j.queue.exceeds(max(j.ambient(), lossNoticed), j.variance())
}

// overran reports whether the initial growth overflowed a queue. Without a queue, either there is a
// rate limiter, or a radio link lost many packets in a row.
func (j *lossJudge) overran(queued bool) bool {
	variance := 0.0
	if !queued {
		variance = overrun * mostDispersed
	}
	return j.twoRounds.lost >= 6 && j.twoRounds.exceeds(overrun, variance)
}

// refused reports whether the current probe loses more than the path does otherwise. A rate limiter
// drops without a queue.
func (j *lossJudge) refused() bool {
	return j.probe.lost >= 3 && j.probe.exceeds(j.ambient()+lossTolerated, j.ambient())
}

// reset forgets what was counted beside a queue, because the sender has responded to it.
func (j *lossJudge) reset() { j.queue, j.probe = tally{}, tally{} }
