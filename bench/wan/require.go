package wan

import (
	"time"

	"github.com/postern-dev/postern/bench"
)

const (
	// fullLine is the payload of a full line of [gridRate], in bits per second: without the
	// headers of IP, UDP, WireGuard and TCP.
	fullLine = 895e6
	// lowerQuartile and upperQuartile are quantiles over rounds. In duels they approximate the
	// medians of the rounds in which one or the other side began first.
	lowerQuartile, upperQuartile = 0.25, 0.75
)

// Requirements are postern's promises about long and lossy paths.
func Requirements() (out []bench.Requirement) {
	for _, rtt := range gridRTTs {
		for _, loss := range gridLosses {
			out = append(out, gridRequirements(Path{RTT: rtt, Loss: loss}, gridCell(rtt, loss))...)
		}
		for _, one := range impairments {
			if rtt >= promisedRTT && one.name != policed {
				out = append(out, of(impairedCell(rtt, one.name)).over(throughput(), bench.WireGuardBBR, bench.Requirement{AtLeast: 0.8}))
			}
		}
	}
	busy := of(cellKeysBusy)
	out = append(out,
		busy.over(keyP50, bench.PosternBefore, bench.Requirement{AtMost: 1}),
		busy.over(keyP99, bench.PosternBefore, bench.Requirement{AtMost: 1}),
		controlRequirement())
	for _, queue := range duelQueues {
		out = append(out, duelRequirements(queue)...)
	}
	return out
}

func gridRequirements(p Path, name string) []bench.Requirement {
	cell := of(name)
	out := []bench.Requirement{cell.over(throughput(), bench.Tsnet, bench.Requirement{AtLeast: 0.9})}
	switch {
	case p.Loss == 0:
		out = append(out, cell.over(throughput(), bench.PosternBefore, bench.Requirement{AtLeast: 0.97}))
	case p.RTT >= promisedRTT:
		out = append(out,
			cell.over(throughput(), bench.WireGuardBBR, bench.Requirement{AtLeast: 0.9}),
			cell.over(throughput(), bench.WireGuardBBR, bench.Requirement{AtLeast: 0.5, Quantile: lowerQuartile}))
	}
	if p.RTT >= promisedRTT && p.Loss == 0.01 {
		out[0].AtLeast = 20
	}
	if p.RTT == 200*time.Millisecond && p.Loss == 0 {
		out = append(out,
			cell.itself(throughput(), bench.Requirement{AtLeast: 0.9 * fullLine}),
			cell.over(bench.PeakMemory, bench.PosternBefore, bench.Requirement{AtMost: 1.3}))
	}
	return out
}

func duelRequirements(queue time.Duration) []bench.Requirement {
	const fair, least, greatest, drops = 0.95, 0.3, 0.7, 0.03
	alone, streams := of(duelCell(duelAlone, queue)), of(duelCell(duelStreams, queue))
	same, cubic := of(duelCell(duelSelf, queue)), of(duelCell(duelCUBIC, queue))
	return []bench.Requirement{
		alone.itself(useMetric, bench.Requirement{AtLeast: 0.85}),
		alone.itself(dropsMetric, bench.Requirement{AtMost: drops}),
		streams.itself(jainMetric, bench.Requirement{AtLeast: fair}),
		streams.itself(dropsMetric, bench.Requirement{AtMost: drops}),
		same.itself(jainMetric, bench.Requirement{AtLeast: fair}),
		same.itself(dropsMetric, bench.Requirement{AtMost: drops}),
		cubic.itself(shareMetric, bench.Requirement{AtLeast: least, Quantile: lowerQuartile}),
		cubic.itself(shareMetric, bench.Requirement{AtMost: greatest, Quantile: upperQuartile}),
		cubic.itself(dropsMetric, bench.Requirement{AtMost: drops}),
	}
}

// of is the name of a cell, and stands for postern in that cell.
type of string

// itself returns a requirement on a value.
func (cell of) itself(m bench.Metric, q bench.Requirement) bench.Requirement {
	q.Name, q.Metric = string(cell)+": "+m.Name, m
	q.Of = bench.CellName{Scenario: scenarioName(string(cell)), Subject: bench.Postern}
	return q
}

// over returns a requirement on the ratio to another subject.
func (cell of) over(m bench.Metric, subject string, q bench.Requirement) bench.Requirement {
	q = cell.itself(m, q)
	q.Name += " over " + subject + "'s"
	q.To = bench.CellName{Scenario: q.Of.Scenario, Subject: subject}
	return q
}
