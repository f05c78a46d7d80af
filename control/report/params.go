package report

import (
	"net/netip"
	"reflect"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// Params are the values that a cause and a fix are made of, as far as they have a type.
// Each is as in catalogue.Params; what is there and not here stays where it was found: errors,
// paths, files, servers, keys, which nobody ought to take from here, and what the writer
// knows of itself.
type Params struct {
	// Address is an address with a port, or a host name with one, that was dialled; Remote
	// is the address behind the name, BesideAddress what was dialled for comparison.
	Address, BesideAddress string
	Remote                 netip.AddrPort
	Endpoints              []netip.AddrPort
	// Token: the writer shows a token of itself, and no certificate.
	Token   bool
	Failure catalogue.Failure
	Beside  catalogue.Beside
	// ServerName and Names are of the host alphabet, Issuer and Authorities of that of
	// authorities.
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
	// Candidates are addresses at which the reader was sought.
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
}

// Candidate is an address that was tried, or would have been, and what became of it.
type Candidate struct {
	Address       netip.AddrPort
	Source, State string
}

// VerdictOf makes what can be told of a verdict: the sentences and every free text stay
// here.
func VerdictOf(target string, v api.Verdict, p catalogue.Params, now time.Time) Verdict {
	out := Verdict{
		Target: target, Outcome: outcome(v.Verdict), Stage: stage(v.Stage),
		RTT: time.Duration(v.RTTSeconds * float64(time.Second)).Round(time.Microsecond),
	}
	if v.CheckedAt != nil {
		out.Age = age(now.Sub(*v.CheckedAt))
	}
	if out.Outcome != api.OK {
		out.Code = code(catalogue.Code(v.Code))
		told := paramsOf(p, now)
		if reflect.ValueOf(&told).Elem().IsZero() {
			return out
		}
		out.Params = &told
	}
	return out
}

func paramsOf(p catalogue.Params, now time.Time) Params {
	out := Params{
		Address: place(p.Address), BesideAddress: place(p.BesideAddress), Token: p.Token,
		Endpoints: addressesOf(p.Endpoints), Failure: failure(p.Failure), Beside: beside(p.Beside),
		ServerName: foreign.Of(p.ServerName).As(host), Issuer: foreign.Of(p.Issuer).As(authority),
		Names: fitAll(p.Names, host), Authorities: fitAll(p.Authorities, authority),
		Age: age(p.Age), Timeout: wait(p.Timeout), Took: wait(p.Took), Way: wait(p.Way),
		NotBefore: moment(p.NotBefore).Truncate(time.Second), NotAfter: moment(p.NotAfter).Truncate(time.Second),
		Version: version(p.Version), OwnVersion: version(p.OwnVersion), Limit: count(p.Limit),
		Gateway: gatewayOf(p.GatewayParams, now),
	}
	out.Remote, _ = address(p.Remote)
	if isStatus(p.Status) {
		out.Status = p.Status
	}
	return out
}

func gatewayOf(p catalogue.GatewayParams, now time.Time) Gateway {
	out := Gateway{
		PeerShut: p.PeerShut, Stamp: moment(p.Stamp), Newest: moment(p.Newest),
		Was: hosts(p.Was), Now: hosts(p.Now), Sent: count(p.Sent), Lost: count(p.Lost), Jitter: wait(p.Jitter),
		MTU: size(p.MTU), LinkMTU: size(p.LinkMTU), Size: size(p.Size),
		NAT: natOf(p.NAT), PeerNAT: natOf(p.PeerNAT), Relay: place(p.Relay),
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
