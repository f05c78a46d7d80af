package check

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameProbes is the check of probes that are dropped if the gateway's check says something else.
const NameProbes = "probes"

const (
	// sessionLife is the lifetime of a WireGuard session (REJECT_AFTER_TIME, WireGuard paper §6.1).
	// An older handshake means that a new one was needed and failed, or that nothing was to be
	// sent.
	sessionLife = 180 * time.Second
	// echoEvery is when more echoes are sent while the first is still awaited: one lost packet is
	// no fault, and a slow path is not silent.
	echoEvery = 500 * time.Millisecond
	// moreEchoes are sent each time from then on: with 30 % loss each way, all of the dozen that
	// can be answered within silence are lost with 10⁻³.
	moreEchoes = 3
	// silence is how long to wait for a peer that nothing is heard from. One that answers probes
	// after the first missed echo may be making a handshake, and has until Timeout.
	silence = 3 * time.Second
	// slowTrip is the round trip from which a path is slow: a satellite takes 0.6 s.
	slowTrip = time.Second
	// pingPayload makes the packet as long as an ordinary ping's.
	pingPayload = 56
)

// asking is what a gateway check does while echoes go unanswered.
type asking struct {
	// again returns the current facts.
	again func() Facts
	// doubt is called repeatedly once the first echo should have been answered.
	doubt func()
	// reprobe is called if echoes are answered and no probe is.
	reprobe func()
}

// Gateway checks the tunnel itself with pings to the peer's overlay address, which also make
// WireGuard start a handshake if it needs one. If none is answered, the decision table (faults.go)
// names the root.
func Gateway(ctx context.Context, ping PingFunc, f Facts) verdict.Finding {
	return gateway(ctx, ping, f, asking{again: func() Facts { return f }, doubt: func() {}, reprobe: func() {}})
}

// gateway is Gateway with access to what is seen during the wait.
func gateway(ctx context.Context, ping PingFunc, f Facts, ask asking) verdict.Finding {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r := begin(api.ServiceGateway, api.ServiceGateway, f)
	if f.Pending {
		return r.fail(api.Warning, StageHandshake, catalogue.AwaitingApproval, catalogue.Params{})
	}
	if !f.Address.IsValid() {
		return r.handshakeOnly()
	}
	rtt, clean, answered := repeatedPing(ctx, ping, f, ask)
	if !answered {
		r.facts = ask.again()
		return r.unanswered()
	}
	if !clean {
		rtt = min(rtt, pingAgain(ctx, ping, f, rtt))
	}
	f = ask.again()
	probeless := f.unproven(time.Now()) && probesDropped(ctx, ping, f, ask)
	return r.answered(ask.again(), rtt, probeless)
}

// unproven reports whether a peer that answers in the tunnel has answered no probe for so long that
// a path would have been found or lost.
func (f Facts) unproven(now time.Time) bool {
	return !f.Stock && f.Path.Kind != "" && f.Path.Answered.IsZero() && len(f.Endpoints) > 0 &&
		!f.Path.Since.IsZero() && now.Sub(f.Path.Since) >= givenUp
}

// reprobed is how long probes are awaited between two answered echoes: those of a round, which take
// a second, and their answers (discovery/path, laterRound).
const reprobed = 2200 * time.Millisecond

// probesDropped reports whether probes are lost that are sent between one echo, which was just
// answered, and another. One that the peer refused was not.
func probesDropped(ctx context.Context, ping PingFunc, f Facts, ask asking) bool {
	began := time.Now()
	ask.reprobe()
	wait := time.NewTimer(reprobed)
	defer wait.Stop()
	tick := time.NewTicker(reprobed / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
			if p := ask.again().Path; !p.Answered.IsZero() || p.Refused.After(began) {
				return false
			}
			continue
		case <-wait.C:
		}
		_, err := ping(ctx, f.Address, pingPayload)
		now := ask.again()
		return err == nil && now.unproven(time.Now()) && now.Path.Asked.After(began) // a path that was silent is not probed for a while
	}
}

// probeless is the verdict on a peer that answers in the tunnel and answers no probes.
func (r *recorder) probeless(e evidence, rtt time.Duration) verdict.Finding {
	p := e.params()
	p.Age = max(0, time.Since(e.Path.Since))
	r.stage(StageProbe, api.Warning, "")
	r.passed(StageHandshake, "")
	r.passed(StagePing, catalogue.Precise(rtt))
	res := r.found(api.Warning, StageProbe, catalogue.ProbesDropped, p)
	res.RTT, res.Sure = rtt, api.Likely
	return res
}

// answered is the verdict on a peer whose tunnel works, with or without probes: only its quality is
// left to judge.
func (r *recorder) answered(f Facts, rtt time.Duration, probeless bool) verdict.Finding {
	r.facts = f
	e := evidenceOf(f, r.began, time.Now())
	turns := f.takesTurns(e.now)
	if probeless && !turns {
		return r.probeless(e, rtt)
	}
	r.open(StageHandshake)
	if turns {
		p := e.params()
		e.duplicate(&p)
		return r.fail(api.Error, StageHandshake, catalogue.DuplicateKey, p)
	}
	r.passed(StageHandshake, "")
	r.passed(StagePing, catalogue.Precise(rtt))
	switch {
	case f.relayed(time.Now()):
		return r.relayInUse(rtt)
	case rtt >= slowTrip:
		res := r.found(api.Warning, StagePing, catalogue.PathSlow, slowOver(f, rtt))
		res.RTT = rtt
		return res
	}
	return r.ok(rtt)
}

// slowOver returns the parameters of a slow path.
func slowOver(f Facts, rtt time.Duration) catalogue.Params {
	p := catalogue.Params{Peer: f.Name, Address: f.Path.Remote}
	p.Took, p.Relay = rtt, f.Path.Relay
	return p
}

// open records the stages before one that was reached, which could not work without them.
func (r *recorder) open(before string) {
	f := r.facts
	if len(f.Unresolved)+len(f.Moved) > 0 && before != StageResolve {
		r.stage(StageResolve, api.OK, "")
	}
	if f.Path.Kind != "" && before != StageResolve && before != StageProbe {
		r.passed(StageProbe, f.Path.Remote)
	}
}

// unanswered is the verdict on a peer that no ping reaches. If it rests on an answer from our own
// network, the peer is told the verdict without that: the peer chose the address, and could
// otherwise use us to scan.
func (r *recorder) unanswered() verdict.Finding {
	e := evidenceOf(r.facts, r.began, time.Now())
	outside := e.outside()
	if len(outside.Unreachable) == len(e.Unreachable) {
		return r.judge(e)
	}
	other := *r
	other.Stages = slices.Clone(r.Stages)
	told := other.judge(outside)
	res := r.judge(e)
	res.Told = &told
	return res
}

// judge returns the first row of the decision table that fits; the last one always does.
func (r *recorder) judge(e evidence) verdict.Finding {
	rows := faults()
	p := e.params()
	i := slices.IndexFunc(rows, func(row fault) bool {
		p = e.params()
		return row.fits(e, &p)
	})
	stage := e.stageOf(rows[i])
	r.open(stage)
	if stage == StagePing {
		r.passed(StageHandshake, "")
	}
	r.Rests, r.Sure = e.rests(rows[i].code, p), e.sure(rows[i])
	if c := rows[i].code; c != catalogue.PingLost && c != catalogue.PathSlow { // its probes are answered
		r.Since = e.lastHeard()
	}
	outcome := api.Error
	if rows[i].code == catalogue.AwaitingApproval {
		outcome = api.Warning
	}
	return r.fail(outcome, stage, rows[i].code, p)
}

// stageOf is the stage of a fault. Without better evidence, silence is the probes' where the path
// finder sends them, else the handshakes'.
func (e evidence) stageOf(row fault) string {
	switch row.code {
	case catalogue.PeerMustDial, catalogue.PeerSilent, catalogue.HandshakeStale:
		if e.probed || e.NoPath == "" || e.counts(e.Initiated.At) {
			return StageHandshake
		}
	}
	return row.stage
}

// repeatedPing pings until one ping is answered, the peer is silent, or ctx ends. clean reports
// whether the echo measured the round trip alone: without a session it would include a handshake,
// and so might one that was answered after others were not.
func repeatedPing(ctx context.Context, ping PingFunc, f Facts, ask asking) (rtt time.Duration, clean, answered bool) {
	var pinging sync.WaitGroup
	defer pinging.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan time.Duration, 1) // the first one
	send := func() {
		pinging.Go(func() {
			if rtt, err := ping(ctx, f.Address, pingPayload); err == nil {
				select {
				case answers <- rtt:
				default:
				}
			}
		})
	}
	began := time.Now()
	tick := time.NewTicker(echoEvery)
	defer tick.Stop()
	send()
	for clean = f.hasSession(); ; clean = false {
		select {
		case rtt = <-answers:
			return rtt, clean, true
		case <-ctx.Done():
			return 0, false, false
		case <-tick.C:
		}
		ask.doubt()
		if time.Since(began) >= silence && !ask.again().Probed.After(began.Add(echoEvery)) {
			return 0, false, false
		}
		for range moreEchoes {
			send()
		}
	}
}

// pingAgain measures the round trip once there is a session; if that echo is lost, it returns the
// first one's time.
func pingAgain(ctx context.Context, ping PingFunc, f Facts, first time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, fullWait)
	defer cancel()
	rtt, err := ping(ctx, f.Address, pingPayload)
	if err != nil {
		return first
	}
	return rtt
}

// hasSession reports whether a packet can be sent without a handshake: the last session lives for
// as long as a check may take.
func (f Facts) hasSession() bool {
	age, known := f.handshakeAge(time.Now())
	return known && age < sessionLife-Timeout
}

// handshakeOnly is the verdict on a stock peer whose addresses need not answer pings. It is silent
// while nothing is to be sent, so an old handshake says nothing.
func (r *recorder) handshakeOnly() verdict.Finding {
	f := r.facts
	if age, known := f.handshakeAge(time.Now()); known && age <= sessionLife && f.NoPath == "" {
		r.passed(StageHandshake, "")
		return r.ok(0)
	}
	res := r.unanswered()
	if res.Code == catalogue.HandshakeStale {
		res.Outcome = api.Unknown
		res.Stages[len(res.Stages)-1].Outcome = api.Unknown
	}
	return res
}
