package check

import (
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/discovery/special"
)

const (
	// evidenceLife is how long something that was seen explains a failure. A peer that is
	// waited for sends initiations every 5 s and probes every 30 s at the longest; what has
	// not been seen for four times that has ended, or been fixed.
	evidenceLife = 2 * time.Minute
	// refusalLife is how long an ICMP error does. Each datagram brings another, and no more than
	// 49 s pass between two initiations; what was refused while the peer was being started,
	// and then is blocked, would be taken for the fault else.
	refusalLife = time.Minute
	// probesAnswered is how recent an answer to a probe shows that the way is open. On an idle
	// path the two sides ask in turn, each every 48 s at the longest.
	probesAnswered = time.Minute
	// silentAfter is how long what is asked again and again may be without an answer before that is
	// silence and no loss: of probes and echoes it is a dozen.
	silentAfter = 2 * time.Second
	// clockStep is how far in the future the last handshake may be and still be one of just
	// now: the wall clock is corrected in small steps all the time.
	clockStep = 2 * time.Second
)

// evidence is what is known of a peer that does not answer, as far as it may explain that.
type evidence struct {
	Facts
	now time.Time
	// began is when the check did.
	began time.Time
	// since is when the failure began: nothing older explains it.
	since time.Time
	// lost: there is no path and no session, so that the fault is on the way.
	lost bool
	// probed: probes pass. The way there and back is open, and the keys are right.
	probed bool
	// gone: nothing passes at present, neither probes nor anything else, whether or not the path
	// is given up.
	gone bool
}

func evidenceOf(f Facts, began, now time.Time) evidence {
	e := evidence{Facts: f, now: now, began: began}
	e.gone = unansweredFor(f.Path.Unanswered, now)
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

// unansweredFor reports whether what is asked since a time is silent.
func unansweredFor(since, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= silentAfter
}

// handshakeAge is how long ago the last handshake was. WireGuard tells that by the wall
// clock: known is false without a handshake, and where the clock was set back since then.
func (f Facts) handshakeAge(now time.Time) (age time.Duration, known bool) {
	age = now.Sub(f.LastHandshake)
	if f.LastHandshake.IsZero() || age < -clockStep {
		return 0, false
	}
	return max(age, 0), true
}

// youngSession reports whether the session that the last handshake made is still usable, as
// far as is known.
func (e evidence) youngSession() bool {
	age, known := e.handshakeAge(e.now)
	return known && age <= sessionLife
}

// counts reports whether something that was seen at a time explains the failure: since the
// last handshake where it is known when that was, and not too long ago.
func (e evidence) counts(at time.Time) bool {
	_, known := e.handshakeAge(e.now)
	return !at.IsZero() && (!known || at.After(e.LastHandshake)) && e.now.Sub(at) < evidenceLife
}

// unanswered is counts for what an answered probe since then would refute.
func (e evidence) unanswered(at time.Time) bool {
	return e.counts(at) && !at.Before(e.Probed)
}

// refuses reports whether an ICMP error still explains the failure.
func (e evidence) refuses(r Refusal) bool {
	return e.unanswered(r.At) && e.now.Sub(r.At) < refusalLife
}

// dialled reports whether the peer reaches us, if without success.
func (e evidence) dialled() bool {
	return e.counts(e.Initiated.At) || e.unanswered(e.HeardUnanswered.At)
}

func (e evidence) age() time.Duration { return max(0, e.now.Sub(e.since)) }

// params are those that every fault of the way may need.
func (e evidence) params() catalogue.Params {
	p := catalogue.Params{Endpoints: e.Endpoints, Age: e.age(), NoPath: e.NoPath}
	p.Candidates, p.NAT, p.PeerNAT, p.Own = e.tried(), e.Path.NAT, e.Path.PeerNAT, e.shown().SeenAs()
	p.Port = e.shown().Port
	return p
}

// tried are the peer's candidates with what ICMP said of them. Why one was chosen is nothing to tell of a
// failure.
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

// isPeer reports whether the peer is known to be where something came from. From the very
// address and port that is dialled, or that the path in use leads to, there is no doubt
// whose it is. From another port of the same host it may be a neighbour behind the same
// NAT, so that only counts while the peer has never worked.
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

// outside is the evidence without the errors that only this gateway can meet: of this machine
// and the routers near it, and of what is sent to an address that is not known to be the same
// host's everywhere, or is in a network of ours.
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
