package config

import (
	"net/url"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
)

// direct reads how a peer's services can be reached outside the tunnel: nothing is
// carried there in this version, but it is checked, side by side with the way through the
// tunnel.
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

// httpsURL checks a URL; an empty one is none.
func (c *checker) httpsURL(field, text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		c.fail(field, "%q is no URL (want https://host:port)", text)
	case u.User != nil:
		c.fail(field, "a URL with a user name or password in it (put the token into tokenFile)")
	case u.Scheme != "https" || u.Hostname() == "":
		c.fail(field, "%q is no https URL (want https://host:port)", text)
	default:
		return text
	}
	return ""
}
