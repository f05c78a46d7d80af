package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Names of the checks that are made outside the tunnel, next to those in it.
const (
	NameAuthDirect      = "auth-direct"
	NameAPIServerDirect = "apiServer-direct"
)

// ViaDirect marks verdicts that were reached outside the tunnel.
const ViaDirect = "direct"

// StageDNS is the resolution of a URL's host.
const StageDNS = "dns"

// ServiceFacts are what is known of a peer's services besides its hello.
type ServiceFacts struct {
	// Direct is what may be tried outside the tunnel.
	Direct DirectFacts
	// Token is what the peer issued for its API server where that is no certificate;
	// empty when there is none. TokenExpires is zero when the issuer did not say.
	Token        Token
	TokenExpires time.Time
}

// DirectFacts are how a peer's services are reached outside the tunnel. They come from
// this gateway's own configuration (spec.peers[].outOfBand) and never from a peer: what
// one announces is not dialled, and no redirection is followed.
type DirectFacts struct {
	// AuthURL and APIServerURL are https URLs; what is empty is not tried.
	AuthURL, APIServerURL string
	// CA holds the PEM certificates of the authorities that signed what is there; empty
	// takes this machine's.
	CA []byte
	// Token is for auth alone. It is sent only after the server's certificate verified.
	Token Token
}

// Network is the network of this machine, outside the tunnel. What is nil is the
// system's.
type Network struct {
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

func (n Network) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if n.Lookup != nil {
		return n.Lookup(ctx, host)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func (n Network) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if n.Dial != nil {
		return n.Dial(ctx, to)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
}

// dialAny connects to the first of the addresses that answers, and gives each a fair part
// of the time. Without success it gives the first one's error: it is the one preferred.
func (n Network) dialAny(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, netip.AddrPort, error) {
	var first error
	var preferred netip.AddrPort
	for i, a := range addrs {
		to := netip.AddrPortFrom(a.Unmap(), port)
		c, err := n.dialPart(ctx, to, len(addrs)-i)
		if err == nil {
			return c, to, nil
		}
		if first == nil {
			first, preferred = err, to
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, preferred, first
}

func (n Network) dialPart(ctx context.Context, to netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	return n.dial(ctx, to)
}

// outside is a URL that may be tried, taken apart.
type outside struct {
	url  string // without user, query and fragment
	host string
	port uint16
	path string // the URL's own, without a slash at its end
}

var errURL = errors.New("want https://HOST or https://HOST:PORT")

// parseOutside takes a configured URL apart. Without TLS nobody could tell who answers.
func parseOutside(raw string) (outside, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return outside{}, errURL
	}
	o := outside{host: u.Hostname(), port: 443, path: strings.TrimRight(u.EscapedPath(), "/")}
	if u.Port() != "" {
		at, err := netip.ParseAddrPort("0.0.0.0:" + u.Port())
		if err != nil || at.Port() == 0 {
			return outside{}, errURL
		}
		o.port = at.Port()
	}
	o.url = "https://" + u.Host + o.path
	return o, nil
}

// connect resolves and dials a URL: stages dns and tcp. With a nil connection the result
// says what failed.
func (r *recorder) connect(ctx context.Context, n Network, raw string, unreachable Code, p *Params) (net.Conn, outside, Result) {
	o, err := parseOutside(raw)
	if err != nil {
		p.Address, p.Failure, p.Detail = cleanURL(raw), FailureURL, err.Error()
		return nil, o, r.fail(api.Error, StageDNS, unreachable, *p)
	}
	p.Address = o.url
	addrs, err := n.lookup(ctx, o.host)
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("%s has no address", o.host)
	}
	if err != nil {
		p.Failure, p.Detail = FailureName, err.Error()
		return nil, o, r.fail(api.Error, StageDNS, unreachable, *p)
	}
	r.passed(StageDNS, join(addrs))
	c, to, err := n.dialAny(ctx, addrs, o.port)
	p.Remote = to.String()
	if err != nil {
		p.Failure, p.Detail = connectFailure(err), err.Error()
		return nil, o, r.fail(api.Error, StageTCP, unreachable, *p)
	}
	r.passed(StageTCP, to.String())
	return c, o, Result{}
}

// cleanURL is a URL for a sentence, without what may be a password.
func cleanURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the URL"
	}
	return u.Redacted()
}

func join(addrs []netip.Addr) string {
	var s []string
	for _, a := range addrs {
		s = append(s, a.Unmap().String())
	}
	return list(s)
}

// connectFailure names the way in which a connection failed.
func connectFailure(err error) Failure {
	switch classify(err) {
	case refused:
		return FailureRefused
	case timedOut:
		return FailureTimeout
	}
	return FailureRoute
}
