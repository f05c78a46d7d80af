package check

import (
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/discovery/special"
)

const (
	// evidenceLife is how long an observation explains a failure. A peer that is waited for sends
	// initiations every 5 s and probes at least every 30 s; what has not been seen for four times
	// that has ended, or been fixed.
	evidenceLife = 2 * time.Minute
	// refusalLife is how long an ICMP error explains one. Each datagram causes another, and at most
	// 49 s pass between two initiations. Otherwise, a peer that refused while starting and is
	// blocked later would still be reported as refusing.
	refusalLife = time.Minute
	// probesAnswered is how recent an answer to a probe must be to show that the path is open. On
	// an idle path the two sides probe in turn, each at least every 48 s.
	probesAnswered = time.Minute
	// silentAfter is how long repeated requests may go unanswered before that is silence and not
	// loss: it is a dozen probes or echoes.
	silentAfter = 2 * time.Second
	// clockStep is how far in the future the last handshake may be and still count as recent: the
	// wall clock is constantly corrected in small steps.
	clockStep = 2 * time.Second
)

// evidence is what is known about a peer that does not answer and may explain why.
type evidence struct {
	Facts
	now time.Time
	// began is when the check began.
	began time.Time
	// since is when the failure began: nothing older explains it.
	since time.Time
	// lost says that there is no path and no session, so the fault is on the way.
	lost bool
	// probed says that probes pass: the path is open in both directions, and the keys are right.
	probed bool
	// gone says that currently nothing passes, whether or not the path is given up.
	gone bool
}

func evidenceOf(f Facts, began, now time.Time) evidence {
	e := evidence{Facts: f, now: now, began: began}
	e.gone = unansweredFor(f.Path.Unanswered, now.Add(-f.Path.RTT))
	e.probed = f.NoPath == "" && !f.Probed.IsZero() && now.Sub(f.Probed) < probesAnswered && !e.gone
	switch {
	case f.LastHandshake.IsZero():
		e.since, e.lost = f.Since, !e.probed
	case f.NoPath != "":
		e.since, e.lost = f.PathLost, true
	default:
		age, _ := f.handshakeAge(now)
		e.since, e.lost = now.Add(-age), !e.youngSession() && !e.probed
	}
	e.gone = e.gone || e.lost
	return e
}

// unansweredFor reports whether requests repeated since then count as silence.
func unansweredFor(since, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= silentAfter
}

// handshakeAge is how long ago the last handshake was, by the wall clock, which WireGuard uses.
// known is false without a handshake, and if the clock has been set back since.
func (f Facts) handshakeAge(now time.Time) (age time.Duration, known bool) {
	age = now.Sub(f.LastHandshake)
	if f.LastHandshake.IsZero() || age < -clockStep {
		return 0, false
	}
	return max(age, 0), true
}

// youngSession reports whether the session of the last handshake is still usable, as far as known.
func (e evidence) youngSession() bool {
	age, known := e.handshakeAge(e.now)
	return known && age <= sessionLife
}

// counts reports whether an observation explains the failure: it is more recent than the last
// handshake, if that is known, and not too old.
func (e evidence) counts(at time.Time) bool {
	_, known := e.handshakeAge(e.now)
	return !at.IsZero() && (!known || at.After(e.LastHandshake)) && e.now.Sub(at) < evidenceLife
}

// unanswered is counts for an observation that a later answered probe refutes.
func (e evidence) unanswered(at time.Time) bool {
	return e.counts(at) && !at.Before(e.Probed)
}

// refuses reports whether an ICMP error still explains the failure.
func (e evidence) refuses(r Refusal) bool {
	return e.unanswered(r.At) && e.now.Sub(r.At) < refusalLife
}

// dialled reports whether the peer reaches us, even without success.
func (e evidence) dialled() bool {
	return e.counts(e.Initiated.At) || e.unanswered(e.HeardUnanswered.At)
}

func (e evidence) age() time.Duration { return max(0, e.now.Sub(e.since)) }

// params returns the parameters that any fault of the path may need.
func (e evidence) params() catalogue.Params {
	p := catalogue.Params{Endpoints: e.Endpoints, Age: e.age(), NoPath: e.NoPath}
	p.Candidates, p.NAT, p.PeerNAT, p.Own = e.tried(), e.Path.NAT, e.Path.PeerNAT, e.shown().SeenAs()
	p.Port = e.shown().Port
	return p
}

// tried returns the peer's candidates with the ICMP errors for them. Why one was selected does not
// matter for a failure.
func (e evidence) tried() []catalogue.Candidate {
	out := slices.Clone(e.Candidates)
	for i, c := range out {
		if c.State == "selected" {
			out[i].Reason = "was in use"
		}
		for _, r := range e.Unreachable {
			if r.To == c.Address && e.refuses(r) {
				out[i].Reason = r.Reason
			}
		}
	}
	return out
}

// isPeer reports whether the peer is known to be at the source of something. An exact address and
// port that is dialled, or that the path in use leads to, is certainly the peer's. Another port of
// the same host may be a neighbour behind the same NAT, so that only counts while the peer has
// never worked.
func (e evidence) isPeer(from string) bool {
	known := append(slices.Clone(e.Endpoints), e.Path.Remote)
	for _, c := range e.Candidates {
		known = append(known, c.Address)
	}
	if from == "" || slices.Contains(known, from) {
		return from != ""
	}
	host, ok := special.Host(from)
	return ok && e.LastHandshake.IsZero() &&
		slices.ContainsFunc(known, func(a string) bool { h, ok := special.Host(a); return ok && h == host })
}

// outside returns the evidence without errors that only this gateway can get: from this host and
// the routers near it, and for addresses that may not be the same host everywhere, or are in a
// network of ours.
func (e evidence) outside() evidence {
	e.Unreachable = slices.DeleteFunc(slices.Clone(e.Unreachable), func(r Refusal) bool {
		return r.hop() != hopBeyond || !global(r.To) || in(e.networks(), r.To)
	})
	return e
}

func (e evidence) networks() []netip.Prefix {
	if e.own == nil {
		return nil
	}
	return e.own.Networks
}
