package verdict

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// Correlate decides for each finding about a peer whether it stands by itself or follows from
// another. own are this gateway's findings, outbound those made here about the peer, and inbound
// those that the peer reports about reaching us; nil means unknown. A finding that follows from
// another becomes unknown and names its root ([Finding.Because]).
//
//	finding                          root, the first that fails
//	any, faulty or unknown           what it rests on (Finding.Rests) and what explains it
//	a service outside the tunnel     the same inside, or the tunnel: see sideBySide
//	inbound                          the tunnel that reports come through
//	inbound, of both ends' tunnel    the same fault seen here
//
// A root is as bad as the worst finding that follows from it: a warning that makes a peer
// unreachable is an error (for own findings, see [Report]). An inbound finding that nothing comes
// through the tunnel is overtaken once this gateway has had an answer through it.
//
// Correlate is idempotent, so outbound findings may be correlated by themselves first.
func Correlate(now time.Time, own, outbound, inbound []Finding) (out, in []Finding) {
	out = slices.Clone(outbound)
	sideBySide(out)
	for i := range out {
		if out[i].said == nil && out[i].Code != "" {
			out[i].said = &said{}
		}
		out[i] = out[i].rest(out, own)
	}
	raise(out, out)
	tunnel, _ := Find(out, api.ServiceGateway)
	in = slices.Clone(inbound)
	for i, f := range in {
		if tunnel.refutes(f) {
			in[i] = f.overtaken()
			continue
		}
		same := slices.IndexFunc(out, func(o Finding) bool { return o.Faulty() && o.Code == f.Code && o.Target == f.Target && f.sharedWith(o) })
		switch {
		case tunnel.broken() && !f.stands():
			in[i] = f.stopped(now).follow(tunnel.root())
		case f.Faulty() && same >= 0:
			in[i] = f.follow(out[same])
		default:
			in[i] = f.rest(in, own)
		}
	}
	return out, in
}

// shared are the faults that both ends of a tunnel see.
var shared = []catalogue.Code{catalogue.PacketsLost, catalogue.PathSlow, catalogue.ProbesDropped, catalogue.RelayInUse, catalogue.DuplicateKey, catalogue.Intermittent}

// sharedWith reports whether a peer's finding of the same code is about the same fault as ours.
func (f Finding) sharedWith(ours Finding) bool {
	return slices.Contains(shared, f.Code) && (f.Code != catalogue.Intermittent || f.Target == api.ServiceGateway && ours.Name == f.Target)
}

// rest makes a finding follow from the first failing finding that it rests on and that explains it.
func (f Finding) rest(list, own []Finding) Finding {
	if !f.Faulty() && f.Outcome != api.Unknown {
		return f
	}
	for _, ref := range f.Rests {
		for _, known := range [][]Finding{own, list} {
			if i := index(known, ref); i >= 0 && known[i].explains(f) {
				return f.follow(known[i])
			}
		}
	}
	return f
}

// explains reports whether f fails in a way that explains a finding that rests on it.
func (f Finding) explains(of Finding) bool {
	if f.Code == catalogue.Intermittent { // it works now
		return of.Code == catalogue.Intermittent
	}
	switch of.Code {
	case catalogue.NotTried:
		return f.Failed() || f.Direction == api.DirectionOutbound
	case catalogue.NoWayIn: // not by itself: both ends find the same
		return f.Faulty() && f.Code == catalogue.PrivateAdvertised
	case catalogue.PacketsLost:
		return f.Faulty() && (f.Params().Drops > 0 || f.Code == of.Code)
	case catalogue.IdentityMissing, catalogue.IdentityExpired:
		return f.Failed()
	}
	return f.Faulty()
}

// follow makes f follow from root, and an error if f was one.
func (f Finding) follow(root Finding) Finding {
	if f.Failed() || f.Because != nil && f.Because.Failed() {
		root.Outcome = api.Error
	}
	f.Outcome, f.Because = api.Unknown, &root
	return f
}

// raise makes roots as bad as what follows from them.
func raise(roots, dependents []Finding) {
	for i, root := range roots {
		if root.Because == nil && root.Outcome == api.Warning && slices.ContainsFunc(dependents, func(f Finding) bool {
			return f.Because != nil && f.Because.Failed() && f.Because.Ref() == root.Ref()
		}) {
			roots[i].Outcome = api.Error
		}
	}
}

// refutes reports whether f, an answer through the tunnel, is newer than a peer's finding that
// nothing comes through. An echo needs both directions.
func (f Finding) refutes(inbound Finding) bool {
	return (f.Outcome == api.OK || f.Outcome == api.Warning && f.RTT > 0) && inbound.Target == api.ServiceGateway && inbound.Failed() &&
		!slices.Contains(shared, inbound.Code) && f.At.After(inbound.At)
}

// root returns the root of the finding, or the finding itself.
func (f Finding) root() Finding {
	if f.Because != nil {
		return *f.Because
	}
	return f
}

// broken reports whether f says that nothing comes through the tunnel.
func (f Finding) broken() bool {
	return f.Failed() || f.Outcome == api.Unknown || f.Code == catalogue.AwaitingApproval
}

// overtaken returns what remains of a peer's finding once it is refuted.
func (f Finding) overtaken() Finding {
	p := catalogue.Params{Peer: f.Peer}
	p.RootCode = f.Code
	f.Outcome, f.Code, f.Args, f.Stage, f.said = api.Unknown, catalogue.ReportOvertaken, &p, "", nil
	return f
}

// stands reports whether an inbound finding holds even if no reports arrive: this gateway itself
// decides what it refuses the peer, and some peers send no reports.
func (f Finding) stands() bool {
	switch f.Code {
	case catalogue.ReportsNever, catalogue.ReportsUnsupported:
		return true
	}
	return f.Outcome == api.Off && f.Fault() != "" && !f.Params().Disputed
}

// stopped returns what remains of a peer's report when the tunnel fails: that there was one.
func (f Finding) stopped(now time.Time) Finding {
	p := catalogue.Params{Peer: f.Peer}
	if !f.Heard.IsZero() {
		p.Age = max(now.Sub(f.Heard), 1)
	}
	f.Code, f.Args, f.Stage, f.RTT, f.said = catalogue.ReportsStopped, &p, "", 0, nil
	return f
}

// sideBySide combines the findings on one service inside and outside the tunnel.
//
//	inside     outside      so
//	works      works        all is well
//	works      fails        a firewall, NAT, name or proxy outside; a warning: there is a way
//	fails      works        the server is well: it is the tunnel, the peer's gateway, or what
//	                        that announces
//	fails      fails        alike: one fault, and the outside depends on the inside;
//	                        otherwise: two
//	not tried  works        the server is well, and the gateway's fault stands by itself
//	not tried  no answer    the whole site may be gone: the outside depends on the gateway
//
// If the path outside is the one in use, it is the other way round: a failure outside is a failure,
// and the inside is only compared with it.
func sideBySide(list []Finding) {
	tunnel, _ := Find(list, api.ServiceGateway)
	for _, service := range []string{api.ServiceAuth, api.ServiceAPIServer} {
		i, o := index(list, service), index(list, Outside(service))
		if i < 0 || o < 0 {
			continue
		}
		main, other := &list[i], &list[o]
		if other.Used {
			main, other = other, main
		}
		switch {
		case main.Faulty() && other.Faulty() && alike(list[i], list[o]):
			if !main.Used {
				*main = main.beside(catalogue.BesideFails, *other)
			}
			*other = other.follow(*main)
		case main.Failed() && other.reached():
			*main = main.beside(catalogue.BesideWorks, *other)
		case main.reached() && other.Failed():
			*other = other.beside(catalogue.BesideWorks, *main)
			other.Outcome = api.Warning
		case main.Used || !tunnel.Failed():
		case main.Code == catalogue.NotTried && other.reached():
			*main = main.beside(catalogue.BesideWorks, *other)
		case other.Failed() && other.unanswered():
			*other = other.follow(tunnel)
		}
	}
}

// beside adds the result of the other path.
func (f Finding) beside(b catalogue.Beside, other Finding) Finding {
	return f.With(func(p *catalogue.Params) { p.Beside, p.BesideAddress = b, other.Address })
}

// reached reports whether the service answered, even if late or only in part.
func (f Finding) reached() bool {
	return f.Outcome == api.OK || f.Outcome == api.Warning || f.Fault() == catalogue.APIServerSlow
}

// unanswered reports whether nothing answered at all, so that even the site may be down.
func (f Finding) unanswered() bool {
	failure := f.Params().Failure
	return failure == catalogue.FailureTimeout || failure == catalogue.FailureRoute ||
		f.Code == catalogue.AuthTimeout || f.Code == catalogue.APIServerTimeout
}

// alike reports whether a service fails in the same way on both paths: with the same code, or
// without any answer. A second fault behind it shows when the first is fixed.
func alike(inside, outside Finding) bool {
	if inside.Code == outside.Code {
		return inside.Code != catalogue.Intermittent || inside.Params().RootCode == outside.Params().RootCode
	}
	down := []catalogue.Code{catalogue.AuthRefused, catalogue.AuthTimeout, catalogue.AuthBroken, catalogue.APIServerRefused, catalogue.APIServerTimeout, catalogue.APIServerBroken}
	failure := outside.Params().Failure
	unreachable := (outside.Code == catalogue.AuthURLUnreachable || outside.Code == catalogue.APIServerURLUnreachable) &&
		failure != catalogue.FailureName && failure != catalogue.FailureURL
	return slices.Contains(down, inside.Code) && (unreachable || slices.Contains(down, outside.Code))
}
