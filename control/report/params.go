package report

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
)

// Params are the values that a cause and a fix are made of, as far as they have a type.
// Each is as in check.Params; what is there and not here stays where it was found: errors,
// paths, files, servers, and keys, which nobody ought to take from here.
type Params struct {
	// Address is an address with a port, or a host name with one, that was dialled; Remote
	// is the address behind the name, BesideAddress what was dialled for comparison.
	Address, BesideAddress string
	Remote                 netip.AddrPort
	Endpoints              []netip.AddrPort
	// Direct: Address was dialled outside the tunnel.
	Direct bool
	// Token: the writer shows a token of itself, and no certificate.
	Token   bool
	Failure check.Failure
	Beside  check.Beside
	// ServerName and Names are of the host alphabet, Issuer and Authorities of that of
	// names.
	ServerName  string
	Names       []string
	Issuer      string
	Authorities []string
	// Status is an HTTP status code.
	Status int
	// Age is how long a condition has lasted, Timeout how long was waited, Took and Way
	// how long an answer and a connection took.
	Age, Timeout, Took, Way time.Duration
	NotBefore, NotAfter     time.Time
	// Version is the reader's protocol version as the writer heard it, OwnVersion the
	// writer's.
	Version, OwnVersion string
	// Limit is a number that was reached.
	Limit int
	Gateway
}

// Gateway are the parameters of the codes about tunnel, path and exposure.
type Gateway struct {
	// From is where something came from, Seen how long before the report; Never, or 0
	// without From, for what was not seen.
	From netip.AddrPort
	Seen time.Duration
	// Own are addresses of the writer, Candidates those of the reader.
	Own        []netip.AddrPort
	Port       uint16
	Candidates []Candidate
	// PeerShut: what the reader announces can be dialled by nobody outside of its network.
	PeerShut bool
	// Stamp and Newest are those of handshakes.
	Stamp, Newest time.Time
	// Was and Now are what a name stood and stands for.
	Was, Now []netip.Addr
	// Sent and Lost count pings.
	Sent, Lost int
	Jitter     time.Duration
	// MTU, LinkMTU and Size are in bytes.
	MTU, LinkMTU, Size int
	// NAT is in front of the writer, PeerNAT in front of the reader.
	NAT, PeerNAT NAT
	// Relay is a TURN server as configured: an address or a host name, with a port.
	Relay string
	// Skew is how much the reader's clock is ahead of the writer's.
	Skew time.Duration
}

// Candidate is an address that was tried, or would have been, and what became of it.
type Candidate struct {
	Address       netip.AddrPort
	Source, State string
}

// VerdictOf makes what can be told of a verdict: the sentences and every free text stay
// here.
func VerdictOf(target string, v api.Verdict, p check.Params, now time.Time) Verdict {
	out := Verdict{
		Target: target, Outcome: outcome(v.Verdict), Stage: stage(v.Stage),
		RTT: time.Duration(v.RTTSeconds * float64(time.Second)).Round(time.Microsecond),
	}
	if v.CheckedAt != nil {
		out.Age = age(now.Sub(*v.CheckedAt))
	}
	if out.Outcome != api.OK {
		out.Code, out.Params = code(check.Code(v.Code)), paramsOf(p, now)
	}
	return out
}

func paramsOf(p check.Params, now time.Time) Params {
	out := Params{
		Address: place(p.Address), BesideAddress: place(p.BesideAddress), Direct: p.Direct, Token: p.Token,
		Endpoints: addressesOf(p.Endpoints), Failure: failure(p.Failure), Beside: beside(p.Beside),
		ServerName: fit(p.ServerName, host), Issuer: fit(p.Issuer, name),
		Names: fitAll(p.Names, host), Authorities: fitAll(p.Authorities, name),
		Age: age(p.Age), Timeout: wait(p.Timeout), Took: wait(p.Took), Way: wait(p.Way),
		NotBefore: p.NotBefore.UTC().Truncate(time.Second), NotAfter: p.NotAfter.UTC().Truncate(time.Second),
		Version: version(p.Version), OwnVersion: version(p.OwnVersion), Limit: count(p.Limit),
		Gateway: gatewayOf(p.GatewayParams, now),
	}
	out.Remote, _ = address(p.Remote)
	if isStatus(p.Status) {
		out.Status = p.Status
	}
	return out
}

func gatewayOf(p check.GatewayParams, now time.Time) Gateway {
	out := Gateway{
		Own: addressesOf(p.Own), Port: p.Port, PeerShut: p.PeerShut, Stamp: p.Stamp.UTC(), Newest: p.Newest.UTC(),
		Was: hosts(p.Was), Now: hosts(p.Now), Sent: count(p.Sent), Lost: count(p.Lost), Jitter: wait(p.Jitter),
		MTU: count(p.MTU), LinkMTU: count(p.LinkMTU), Size: count(p.Size),
		NAT: natOf(p.NAT), PeerNAT: natOf(p.PeerNAT), Relay: place(p.Relay),
		Skew: min(max(p.Skew, -maxAge), maxAge).Round(time.Second),
	}
	if from, ok := address(p.From); ok {
		out.From = from
	}
	if !p.Seen.IsZero() {
		out.Seen = age(now.Sub(p.Seen))
	}
	for _, c := range p.Candidates {
		if a, ok := address(c.Address); ok && len(out.Candidates) < maxEndpoints {
			out.Candidates = append(out.Candidates, Candidate{a, source(c.Source), state(c.State)})
		}
	}
	return out
}

// rendered are the parameters for the table of causes, read at the gateway that is
// reported on. written is when the report was, by that gateway's clock.
func (p Params) rendered(reporter, target string, written time.Time) check.Params {
	return check.Params{
		Inbound: true, Peer: reporter, Service: target, Direct: p.Direct, Address: p.Address,
		Endpoints: texts(p.Endpoints), ServerName: p.ServerName, Names: p.Names, Issuer: p.Issuer,
		Authorities: p.Authorities, Status: p.Status, Age: p.Age, Timeout: p.Timeout,
		NotBefore: p.NotBefore, NotAfter: p.NotAfter,
		Version: p.Version, OwnVersion: p.OwnVersion, Limit: p.Limit,
		GatewayParams: p.Gateway.rendered(written),
		ServiceParams: check.ServiceParams{
			Token: p.Token, Failure: p.Failure, Remote: text(p.Remote), Took: p.Took, Way: p.Way,
			Beside: p.Beside, BesideAddress: p.BesideAddress,
		},
	}
}

func (g Gateway) rendered(written time.Time) check.GatewayParams {
	out := check.GatewayParams{
		From: text(g.From), Own: texts(g.Own), Port: g.Port, PeerShut: g.PeerShut, Stamp: g.Stamp, Newest: g.Newest,
		Was: hostTexts(g.Was), Now: hostTexts(g.Now), Sent: g.Sent, Lost: g.Lost, Jitter: g.Jitter,
		MTU: g.MTU, LinkMTU: g.LinkMTU, Size: g.Size, NAT: check.NAT(g.NAT), PeerNAT: check.NAT(g.PeerNAT),
		Relay: g.Relay, Skew: g.Skew,
	}
	if g.From.IsValid() {
		out.Seen = written.Add(-g.Seen)
	}
	for _, c := range g.Candidates {
		out.Candidates = append(out.Candidates, check.Candidate{Address: c.Address.String(), Source: c.Source, State: c.State})
	}
	return out
}
