package check

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// Timeout bounds one check with all its stages.
const Timeout = 4 * time.Second

// Names of stages, as api.Verdict has them.
const (
	StageResolve   = "resolve"
	StageProbe     = "probe"
	StageHandshake = "handshake"
	StagePing      = "ping"
	StageMTU       = "mtu"
	StageTraffic   = "traffic"
	StageTCP       = "tcp"
	StageTLS       = "tls"
	StageHTTP      = "http"
	StageAuth      = "auth"
)

// Facts are what is known about a peer when a check starts.
type Facts struct {
	// Name is the peer's local name.
	Name string
	// Key is its public key, in base64.
	Key string
	// Former are the keys that it has replaced. Joined: it joined by ticket, or this gateway did.
	Former []string
	Joined bool
	// Address is its overlay address; invalid for a stock peer without one.
	Address netip.Addr
	// Stock marks a plain WireGuard peer: it has no postern services.
	Stock bool
	// Pending marks a peer that has not been approved yet.
	Pending bool
	// Awaited: the peer has yet to approve this gateway, as it said when this gateway joined.
	Awaited bool

	// Since is when this gateway began trying to reach the peer.
	Since time.Time
	// LastHandshake is zero before the first. Attempts counts the handshakes that went unanswered
	// since the last answer.
	LastHandshake time.Time
	Attempts      int
	// Probed is when the path finder last had an authenticated answer on the path in use; zero if
	// never.
	Probed time.Time
	// NoPath says why the path finder has no path to the peer; empty if it has one, or looks for
	// none.
	NoPath string
	// PathLost is since when it has none; meaningless without NoPath.
	PathLost time.Time
	// Endpoints are the underlay addresses that are tried, Candidates the same with the state of
	// each.
	Endpoints  []string
	Candidates []catalogue.Candidate
	// Unresolved are endpoint names that have never resolved, Moved those whose addresses changed,
	// Named all that resolve, with Now alone.
	Unresolved, Moved, Named []NameFact
	// Path is the path in use.
	Path PathFacts
	Evidence
	// own is what is known about this gateway, and answersAt returns the other peer that is reached at
	// an address, empty for none; both are set by the runner.
	own       *Own
	answersAt func(address string) string

	// Offers are the services that the peer's hello granted to this gateway; nil before the first
	// hello.
	Offers []string
	// TellsOffers says that the peer announces changes of its offers.
	TellsOffers bool
	// ServerName is the announced name in its API server's certificate; empty means
	// DefaultServerName.
	ServerName string
	// CA holds the announced PEM certificates for its API server; empty means the system's
	// authorities.
	CA []byte
	// Identity is what the peer issued for its API server; nil if there is none.
	Identity *tls.Certificate
	ServiceFacts
}

// started is when the peer's gateway was first heard with its current boot number; zero if unknown.
func (f Facts) started() (at time.Time) {
	if n := len(f.BootsAt); n > 1 { // the first one was there before
		at = f.BootsAt[n-1]
	}
	return at
}

// shown returns what this gateway shows of itself, as far as known.
func (f Facts) shown() catalogue.Shown {
	if f.own == nil {
		return catalogue.Shown{}
	}
	return f.own.Shown
}

// offers reports whether the peer grants a service; known is false before the first hello.
func (f Facts) offers(service string) (granted, known bool) {
	return slices.Contains(f.Offers, service), f.Offers != nil
}

// endpoint returns the overlay address of a service.
func (f Facts) endpoint(port uint16) netip.AddrPort { return netip.AddrPortFrom(f.Address, port) }

// DialFunc connects to an address inside the tunnel.
type DialFunc func(context.Context, netip.AddrPort) (net.Conn, error)

// PingFunc sends one echo request with payload bytes inside the tunnel.
type PingFunc func(ctx context.Context, to netip.Addr, payload int) (time.Duration, error)

// recorder collects the results of one check.
type recorder struct {
	verdict.Finding
	facts Facts
	began time.Time
	at    time.Time // start of the current stage
}

// begin starts a check of a peer through the tunnel.
func begin(name, target string, f Facts) *recorder {
	now := time.Now()
	return &recorder{facts: f, began: now, at: now, Finding: verdict.Finding{
		Name: name, Target: target, Peer: f.Name, Direction: api.DirectionOutbound, Via: verdict.ViaInBand}}
}

// beginOwn starts a check of this gateway.
func beginOwn(name string) *recorder {
	return &recorder{at: time.Now(), Finding: verdict.Finding{Name: name, Target: api.ServiceGateway, Direction: api.DirectionOwn}}
}

// passed ends a stage successfully.
func (r *recorder) passed(stage, seen string) { r.stage(stage, api.OK, seen) }

func (r *recorder) stage(name string, o api.Outcome, text string) {
	now := time.Now()
	r.Stages = append(r.Stages, verdict.Stage{Name: name, Outcome: o, Took: now.Sub(r.at), Detail: cleanText(text)})
	r.at = now
}

// ok ends the check successfully. rtt is the time of one round trip.
func (r *recorder) ok(rtt time.Duration) verdict.Finding {
	f := r.end(api.OK, "")
	f.RTT = rtt
	return f
}

// fail ends the check at a stage, with an error or a warning.
func (r *recorder) fail(o api.Outcome, stage string, c catalogue.Code, p catalogue.Params) verdict.Finding {
	r.stage(stage, o, p.Detail)
	return r.found(o, stage, c, p)
}

// found ends the check with a code, after its stages.
func (r *recorder) found(o api.Outcome, stage string, c catalogue.Code, p catalogue.Params) verdict.Finding {
	f := r.end(o, c)
	if f.Direction == api.DirectionOutbound {
		p.Peer = f.Peer
	}
	f.Stage, f.Args = stage, &p
	return f
}

// off ends a check of something that the peer does not offer.
func (r *recorder) off(c catalogue.Code) verdict.Finding { return r.end(api.Off, c) }

func (r *recorder) end(o api.Outcome, c catalogue.Code) verdict.Finding {
	f := r.Finding
	f.Outcome, f.Code, f.At = o, c, time.Now()
	return f
}

// cleanText makes a text that may be foreign safe for a message.
func cleanText(s string) string { return foreign.Of(s).String() }
