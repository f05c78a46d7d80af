package check

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// Timeout bounds one check, all its stages together.
const Timeout = 5 * time.Second

// Names of stages, as api.Verdict has them.
const (
	StageResolve   = "resolve"
	StageProbe     = "probe"
	StageHandshake = "handshake"
	StagePing      = "ping"
	StageMTU       = "mtu"
	StageTCP       = "tcp"
	StageTLS       = "tls"
	StageHTTP      = "http"
	StageAuth      = "auth"
)

// ViaInBand marks verdicts that were reached through the tunnel.
const ViaInBand = "in-band"

// Facts are what is known of a peer when a check starts.
type Facts struct {
	// Name is the peer's name here.
	Name string
	// Address is its overlay address; invalid for a stock peer without one.
	Address netip.Addr
	// Stock marks a plain WireGuard peer: it has no services of postern.
	Stock bool
	// Pending marks a peer that nobody has approved yet.
	Pending bool

	// Since is when this gateway began to try to reach the peer.
	Since time.Time
	// LastHandshake is zero before the first.
	LastHandshake time.Time
	// Probed is when the path finder last had an authenticated answer over the path in
	// use; zero when there is none.
	Probed time.Time
	// NoPath says why the path finder has no path to the peer; empty when it has one, or
	// looks for none.
	NoPath string
	// PathLost is since when it has none; meaningless without NoPath.
	PathLost time.Time
	// Endpoints are the underlay addresses that are tried, Candidates the same with what
	// became of each.
	Endpoints  []string
	Candidates []catalogue.Candidate
	// Unresolved are endpoint names that never resolved, Moved those whose addresses
	// changed.
	Unresolved, Moved []NameFact
	// Path is the way in use.
	Path PathFacts
	Evidence
	// Inbound is what the peer last reported about reaching us, rendered here, and
	// InboundAge the time since that arrived; nil when there is none that still counts.
	Inbound    *api.Targets
	InboundAge time.Duration
	// own is what is known of this gateway; the runner sees to it.
	own *Own

	// Offers are the services that the peer's hello granted to this gateway; nil when
	// no hello has been answered yet.
	Offers []string
	// TellsOffers: the peer tells by itself when it offers something else.
	TellsOffers bool
	// ServerName is the name the peer announced for its API server's certificate; empty
	// takes DefaultServerName.
	ServerName string
	// CA holds the PEM certificates that the peer announced for its API server; empty
	// takes this machine's authorities.
	CA []byte
	// Identity is what the peer issued for its API server; nil when there is none.
	Identity *tls.Certificate
	ServiceFacts
}

// offers reports whether the peer grants a service; known is false before the first hello.
func (f Facts) offers(service string) (granted, known bool) {
	return slices.Contains(f.Offers, service), f.Offers != nil
}

// endpoint is the overlay address of a service.
func (f Facts) endpoint(port uint16) netip.AddrPort { return netip.AddrPortFrom(f.Address, port) }

// DialFunc connects to an address inside the tunnel.
type DialFunc func(context.Context, netip.AddrPort) (net.Conn, error)

// PingFunc sends one echo request with so many bytes of payload inside the tunnel.
type PingFunc func(ctx context.Context, to netip.Addr, payload int) (time.Duration, error)

// Stage is one step of a check.
type Stage struct {
	Name    string
	Outcome api.Outcome
	Took    time.Duration
	// Detail is the error's text, or what was seen; clean to show.
	Detail string
}

// Result is the outcome of one check.
type Result struct {
	// Name is unique within the peer: the target's, or one of those named Name….
	Name string
	// Target is auth, apiServer or gateway.
	Target  string
	Verdict api.Verdict
	// DependsOn names the check of the same peer whose fix fixes this one.
	DependsOn string
	// params are what the verdict's cause and fix were rendered from, nil where that is all
	// nothing: they are large, and of a thousand peers that are well there are none.
	params *catalogue.Params
	// told is what the peer is told instead of this; nil where it is told this.
	told *Result
	// address is where the service was asked, whatever came of it.
	address string
	Stages  []Stage
	// Hello is the peer's answer, when the auth check got one.
	Hello *auth.Hello
	// used: the way outside the tunnel is the one that is used.
	used bool
}

// recorder collects the stages of one check.
type recorder struct {
	name, target string
	via          string
	facts        Facts
	start        time.Time
	at           time.Time // start of the present stage
	stages       []Stage
	address      string // where the service is asked
}

func begin(target string, f Facts) *recorder {
	now := time.Now()
	return &recorder{name: target, target: target, via: ViaInBand, facts: f, start: now, at: now}
}

// passed ends a stage well.
func (r *recorder) passed(stage, seen string) { r.stage(stage, api.OK, seen) }

func (r *recorder) stage(name string, o api.Outcome, text string) {
	now := time.Now()
	r.stages = append(r.stages, Stage{Name: name, Outcome: o, Took: now.Sub(r.at), Detail: cleanText(text)})
	r.at = now
}

// ok ends the check well. rtt is what the verdict shows: the time of one round trip.
func (r *recorder) ok(rtt time.Duration) Result {
	return r.result(api.Verdict{Verdict: api.OK, RTTSeconds: rtt.Seconds()})
}

// fail ends the check at a stage, with an error or a warning.
func (r *recorder) fail(o api.Outcome, stage string, c catalogue.Code, p catalogue.Params) Result {
	r.stage(stage, o, p.Detail)
	return r.rendered(o, stage, c, p)
}

// rendered ends the check with the verdict of a code.
func (r *recorder) rendered(o api.Outcome, stage string, c catalogue.Code, p catalogue.Params) Result {
	p.Peer = r.facts.Name
	res := r.result(r.verdict(o, stage, c, p))
	res.params = &p
	return res
}

// Told is the result as the peer may be told it: without what an address that the peer
// announced has made this gateway find in its own network.
func (r Result) Told() Result {
	if r.told != nil {
		return *r.told
	}
	return r
}

// Params are what the verdict's cause and fix were rendered from, which may be nothing.
func (r Result) Params() catalogue.Params {
	if r.params == nil {
		return catalogue.Params{}
	}
	return *r.params
}

// verdict renders a code for the peer of this check.
func (r *recorder) verdict(o api.Outcome, stage string, c catalogue.Code, p catalogue.Params) api.Verdict {
	p.Peer = r.facts.Name
	cause, fix := catalogue.Render(c, p)
	return api.Verdict{Verdict: o, Code: string(c), Stage: stage, Cause: cause, Fix: fix, Command: catalogue.Command(c, p)}
}

func (r *recorder) result(v api.Verdict) Result {
	now := time.Now()
	v.CheckedAt, v.Via = &now, r.via
	return Result{Name: r.name, Target: r.target, Verdict: v, address: r.address, Stages: r.stages, used: r.via == ViaDirect && r.facts.Direct.Used}
}

// off ends a check of what the peer does not offer.
func (r *recorder) off(c catalogue.Code) Result {
	return r.result(r.verdict(api.Off, "", c, catalogue.Params{}))
}

// cleanText is a text that may be of others, fit for a sentence.
func cleanText(s string) string { return foreign.Of(s).String() }
