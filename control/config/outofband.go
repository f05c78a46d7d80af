package config

import (
	"crypto/tls"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
)

// outOfBand reads where auth is served outside the tunnel.
func (c *checker) outOfBand(at string, o *api.OutOfBand) *OutOfBand {
	out := &OutOfBand{Listen: o.Listen}
	if o.Listen == "" {
		c.fail(at+".listen", "missing (want host:port or :port)")
	} else {
		c.listenAddress(at+".listen", o.Listen)
	}
	if o.TLS == nil {
		c.warn(at+".tls", "none is given: tokens and identities are readable on the way here unless an Ingress or a proxy in front of it terminates TLS, and the network from there is yours")
		return out
	}
	cert, okCert := c.read(at+".tls.certFile", c.path(at+".tls.certFile", o.TLS.CertFile))
	key, okKey := c.secret(at+".tls.keyFile", o.TLS.KeyFile)
	if okCert && okKey {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			c.fail(at+".tls", "%s and %s are not a certificate and its key (give files that belong together)", o.TLS.CertFile, o.TLS.KeyFile)
		}
	}
	out.CertFile, out.KeyFile = c.path(at+".tls.certFile", o.TLS.CertFile), c.path(at+".tls.keyFile", o.TLS.KeyFile)
	return out
}

// needsDirect requires what mode OutOfBand needs.
func (c *checker) needsDirect(at string, e *api.Peer) {
	o := e.OutOfBand
	if o == nil {
		o = new(api.PeerOutOfBand)
	}
	if e.Stock {
		c.fail(at+".mode", "a stock WireGuard peer has no auth (use InBand)")
		return
	}
	for _, x := range []struct{ field, value, want string }{
		{"authURL", o.AuthURL, "where the peer's auth answers: https://host:port"},
		{"apiServerURL", o.APIServerURL, "where the peer's API server answers: https://host:port"},
	} {
		if x.value == "" {
			c.fail(at+".outOfBand."+x.field, "missing with mode OutOfBand (want %s)", x.want)
		}
	}
}

// direct reads how a peer's services can be reached outside the tunnel. In any mode they are
// checked there, next to the path through the tunnel.
func (c *checker) direct(at string, e *api.Peer) check.DirectFacts {
	o := e.OutOfBand
	if o == nil {
		return check.DirectFacts{}
	}
	at += ".outOfBand"
	if e.Stock {
		c.fail(at, "a stock WireGuard peer has no services to check (remove it)")
		return check.DirectFacts{}
	}
	d := check.DirectFacts{
		Used:         e.Mode == api.ModeOutOfBand,
		AuthURL:      c.httpsURL(at+".authURL", o.AuthURL),
		APIServerURL: c.httpsURL(at+".apiServerURL", o.APIServerURL),
	}
	if o.CAFile != "" {
		d.CA = c.certificates(at+".caFile", o.CAFile)
	}
	if o.TokenFile != "" {
		if data, ok := c.secret(at+".tokenFile", o.TokenFile); ok {
			d.Token = check.Token(strings.TrimSpace(string(data)))
		}
	}
	return d
}

// httpsURL checks a URL; an empty one means none.
func (c *checker) httpsURL(field, text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		c.fail(field, "%q is not a URL (want https://host:port)", text)
	case u.User != nil:
		c.fail(field, "a URL with a user name or password in it (put the token into tokenFile)")
	case u.Scheme != "https" || u.Hostname() == "":
		c.fail(field, "%q is not an https URL (want https://host:port)", text)
	default:
		return text
	}
	return ""
}
