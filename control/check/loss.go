package check

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// How loss is measured. An echo is lost if either direction loses it, so a loss of 5 % in one
// direction shows as 5 % here, and one in both as 9.75 %. Of n = 200 echoes with a loss probability
// q:
//
//	q        what it is                     P(fewer than 3 lost)  P(3 or more lost)
//	5 %      the least that is to be found  0.0023
//	9.75 %   5 % each way                   0.0000003
//	0.1 %    a fair line of the Internet                          0.0011
//	0.01 %   a good one                                           0.0000013
//
// Half as many echoes would miss 5 % in 12 % of cases at that threshold, and with a lower one would
// call a fair line lossy in 0.5 %. At 10 ms apart, 200 take 2 s and 26 KB in each direction. They
// are sent on demand and while there is known loss, never to an idle healthy peer.
const (
	lossPings     = 200
	lossEvery     = 10 * time.Millisecond
	lossThreshold = 3
	// With every largeEvery-th one, another of the largest size that passes is sent: 10, which are
	// 14 KB. A line may lose these alone, where fragments are lost or bits are. That few show a loss of
	// 30 % in one direction in six cases of ten, and 30 % each way in nine.
	largeEvery = 20
	// lossWait is how long to wait for another answer, on a path of up to half a second; longer
	// ones get twice their round trip, up to lossWaitMost. A slow echo is not a lost one.
	lossWait     = time.Second
	lossWaitMost = 3 * time.Second
	// maxBursts is how many peers are measured at once, so that the pings themselves cause no loss:
	// 8 are 1,600 packets a second. burstWait is how long the others wait for their turn; with the
	// rest of the check that stays within the time for a report.
	maxBursts = 8
	burstWait = 4 * time.Second
)

// loss is the result of a burst of echoes.
type loss struct {
	sent, lost int
	rtt        time.Duration // the mean
	jitter     time.Duration // the mean difference between successive round trips
	// large and largeLost count the echoes of size bytes, IP header included; 0 if the size is
	// unknown.
	size, large, largeLost int
}

// waitFor is how long to wait for an answer on a path with a round trip, at least.
func waitFor(rtt, least time.Duration) time.Duration {
	return max(least, min(2*rtt, lossWaitMost))
}

// measureLoss sends a burst of pings over a path with a round trip. It waits until all are answered,
// or no answer has come for a while: the burst itself may fill a queue, so that later answers take
// longer. It returns false if too few could be sent in time to say anything, or none is answered:
// that is not loss but silence.
func measureLoss(ctx context.Context, ping PingFunc, f Facts, rtt time.Duration) (loss, bool) {
	sending, stop := context.WithTimeout(ctx, lossPings*lossEvery+lossWait/2)
	defer stop()
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	trips, large := make([]time.Duration, lossPings), make([]time.Duration, lossPings/largeEvery)
	size := min(f.Path.MTU, f.Path.LinkMTU)
	answers := make(chan bool, len(trips)+len(large))
	var echoes sync.WaitGroup
	tick := time.NewTicker(lossEvery)
	defer tick.Stop()
	sent, awaited := 0, 0
	for ; sent < lossPings && sending.Err() == nil; sent++ {
		trip := &trips[sent]
		echoes.Go(func() {
			*trip = echo(waiting, ping, f, pingPayload)
			answers <- true
		})
		if size > 0 && sent%largeEvery == 0 {
			awaited++
			largeTrip := &large[sent/largeEvery]
			echoes.Go(func() {
				*largeTrip = echo(waiting, ping, f, f.payload(size))
				answers <- true
			})
		}
		select {
		case <-tick.C:
		case <-sending.Done():
		}
	}
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	for left := sent + awaited; left > 0; left-- {
		quiet.Reset(waitFor(rtt, lossWait))
		select {
		case <-answers:
			continue
		case <-quiet.C:
		case <-ctx.Done():
		}
		break
	}
	giveUp()
	echoes.Wait()
	if sent < lossPings/2 || ctx.Err() != nil {
		return loss{}, false
	}
	l := lossOf(trips[:sent])
	l.size, l.large, l.largeLost = size, awaited, lossOf(large[:awaited]).lost
	return l, l.lost < l.sent
}

// noAnswer is the round trip of a lost echo.
const noAnswer = time.Duration(-1)

func echo(ctx context.Context, ping PingFunc, f Facts, payload int) time.Duration {
	rtt, err := ping(ctx, f.Address, payload)
	if err != nil {
		return noAnswer
	}
	return rtt
}

// lossOf evaluates round trips in sending order.
func lossOf(trips []time.Duration) loss {
	l := loss{sent: len(trips)}
	var sum, last, differences time.Duration
	answered := 0
	for _, t := range trips {
		if t == noAnswer {
			l.lost++
			continue
		}
		if answered > 0 {
			differences += (t - last).Abs()
		}
		last = t
		sum += t
		answered++
	}
	if answered > 0 {
		l.rtt = sum / time.Duration(answered)
	}
	if answered > 1 {
		l.jitter = differences / time.Duration(answered-1)
	}
	return l
}

// withLoss turns the verdict on a working, measured gateway into one about loss. What the previous
// one said about the path is kept as a separate check.
func withLoss(gateway verdict.Finding, l loss, f Facts) []verdict.Finding {
	gateway.Stages = slices.Clone(gateway.Stages)
	var p catalogue.Params
	if l.lost < lossThreshold && l.largeLost >= lossThreshold && l.largeLost < l.large { // if all are, the size does not pass
		l.sent, l.lost, p.Size = l.large, l.largeLost, l.size
	}
	if l.lost < lossThreshold {
		i := len(gateway.Stages) - 1
		if i >= 0 && gateway.Stages[i].Name == StagePing {
			gateway.Stages[i].Detail = fmt.Sprintf("%d of %d lost, mean %s, jitter %s", l.lost, l.sent, catalogue.Precise(l.rtt), catalogue.Precise(l.jitter))
		}
		if gateway.Outcome == api.OK && l.rtt >= slowTrip { // the burst was more than the line carries
			slow := slowOver(f, l.rtt)
			gateway.Outcome, gateway.Code, gateway.Stage, gateway.Args = api.Warning, catalogue.PathSlow, StagePing, &slow
		}
		return []verdict.Finding{gateway}
	}
	r := begin(api.ServiceGateway, api.ServiceGateway, f)
	r.Rests = []string{verdict.Own(NameSending), verdict.Own(NameResources)}
	r.Stages = slices.Clone(gateway.Stages)
	if i := len(r.Stages) - 1; i >= 0 && r.Stages[i].Name == StagePing {
		r.Stages[i].Outcome = api.Warning
		r.Stages[i].Detail = fmt.Sprintf("%d of %d lost, jitter %s", l.lost, l.sent, catalogue.Precise(l.jitter))
	}
	p.Sent, p.Lost, p.Jitter, p.Address, p.Relay = l.sent, l.lost, l.jitter, f.Path.Remote, f.Path.Relay
	p.Full, p.Rate = fills(f.Path.Traffic)
	res := r.found(api.Warning, StagePing, catalogue.PacketsLost, p)
	res.RTT = gateway.RTT
	return replaced(gateway, res)
}

// replaced returns the finding that replaces the gateway's, and what the gateway's says about the
// path as a separate check.
func replaced(gateway, by verdict.Finding) []verdict.Finding {
	out := []verdict.Finding{by}
	switch gateway.Code {
	case catalogue.RelayInUse:
		gateway.Name = NameRelay
	case catalogue.ProbesDropped:
		gateway.Name = NameProbes
	default:
		return out
	}
	return append(out, gateway)
}
