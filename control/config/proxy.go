package config

import (
	"cmp"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/discovery/egress"
)

// NoProxy is the URL for no proxy, whatever the environment says.
const NoProxy = "none"

const wantProxy = "want http://HOST:PORT or https://HOST:PORT"

// proxy reads the proxy of outbound connections. Without one in the file it is taken from the
// environment, where many programs look for it; a mistake there is reported, but is not the file's.
func (c *checker) proxy(at string) egress.Proxy {
	p := c.doc.Spec.Proxy
	if p == nil {
		p = new(api.Proxy)
	}
	if p.URL == NoProxy {
		return egress.Proxy{}
	}
	out := egress.Proxy{URL: p.URL, Username: p.Username}
	if p.URL != "" {
		if !isProxyURL(p.URL, false) {
			c.fail(at+".url", "not a proxy's URL (%s; the user goes into username and passwordFile)", wantProxy)
		}
		out.Password = c.proxyPassword(at, p)
	} else if out = c.proxyOfEnv(at, p); out.URL == "" {
		if p.Username != "" || p.PasswordFile != "" || len(p.NoProxy) > 0 {
			c.fail(at+".url", "missing (%s; neither the file nor HTTPS_PROXY has it)", wantProxy)
		}
		return egress.Proxy{}
	}
	if len(p.NoProxy) == 0 {
		if name, value := c.env("NO_PROXY"); value != "" {
			p.NoProxy = list(value)
			c.origins[at+".noProxy"] = Origin{Source: FromEnv, Name: name}
		}
	}
	out.NoProxy = strings.Join(p.NoProxy, ",")
	c.doc.Spec.Proxy = p
	return out
}

// proxyOfEnv returns the one of HTTPS_PROXY, whose credentials precede its host.
func (c *checker) proxyOfEnv(at string, p *api.Proxy) (out egress.Proxy) {
	name, raw := c.env("HTTPS_PROXY")
	if raw == "" {
		return out
	}
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	c.origins[at+".url"] = Origin{Source: FromEnv, Name: name}
	if !isProxyURL(raw, true) {
		c.warn(at+".url", "not used: not a proxy's URL (%s)", wantProxy)
		delete(c.origins, at+".url")
		return out
	}
	u, _ := url.Parse(raw)
	out.URL = (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	p.URL = out.URL
	if p.Username != "" || p.PasswordFile != "" {
		out.Username, out.Password = p.Username, c.proxyPassword(at, p)
		return out
	}
	password, _ := u.User.Password()
	out.Username, out.Password = u.User.Username(), egress.Secret(password)
	return out
}

// proxyPassword reads the password file.
func (c *checker) proxyPassword(at string, p *api.Proxy) egress.Secret {
	switch {
	case p.PasswordFile == "" && p.Username != "":
		c.fail(at+".passwordFile", "missing (the file that holds the password of %q)", p.Username)
	case p.PasswordFile != "" && p.Username == "":
		c.fail(at+".username", "missing (the proxy wants the name that the password is for)")
	case strings.Contains(p.Username, ":"):
		c.fail(at+".username", "%q has a colon, which ends a name in Basic credentials", p.Username)
	case p.PasswordFile != "":
		data, ok := c.secret(at+".passwordFile", p.PasswordFile)
		password := egress.Secret(strings.TrimSpace(string(data)))
		if ok && password == "" {
			c.fail(at+".passwordFile", "%s is empty", c.path(at+".passwordFile", p.PasswordFile))
		}
		return password
	}
	return ""
}

// env reads a variable that is not only postern's, in upper or lower case.
func (c *checker) env(name string) (found, value string) {
	if c.lookupEnv == nil {
		return "", ""
	}
	for _, found := range []string{name, strings.ToLower(name)} {
		if value, _ := c.lookupEnv(found); value != "" {
			return found, value
		}
	}
	return "", ""
}

// isProxyURL reports whether the URL can be a proxy's; user reports whether it may have a user.
func isProxyURL(raw string, user bool) bool {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || (u.User != nil && !user) || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return false
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16)
	return err == nil && port > 0 && CheckDialAddress(net.JoinHostPort(u.Hostname(), "1")) == nil
}
