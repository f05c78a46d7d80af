package check

import (
	"fmt"
	"regexp"
	"time"
)

// apiServerEntries are the codes of a peer's API server, once TLS has been met.
func apiServerEntries() []Entry {
	return []Entry{
		{APIServerRefused, "the peer refuses connections to its API server", func(p Params) string {
			return detail(fmt.Sprintf("%s refused %s TCP %s inside the tunnel although it offers apiServer: it cannot reach its own API server",
				p.owner(), p.client(), or(p.Address, "6443")), p)
		}, func(p Params) string {
			return fmt.Sprintf("%sset spec.services.apiServer.address to an address that answers; `postern check` %s says which part fails (upstream-apiServer, PST0310 to PST0313)",
				p.at(), p.there())
		}},
		{APIServerTimeout, "the API server does not answer in time", func(p Params) string {
			return detail(fmt.Sprintf("%s did not answer%s within %s", p.server(), p.toClient(), seconds(p.Timeout)), p)
		}, func(p Params) string {
			return fmt.Sprintf("%srun `kubectl get --raw /livez`%s", p.at(), p.measure("; if that answers, measure the tunnel with"))
		}},
		{APIServerBroken, "the connection to the API server breaks off", func(p Params) string {
			return detail(fmt.Sprintf("the connection%s to %s broke off before the answer was complete", p.ofClient(), p.server()), p)
		}, func(p Params) string {
			return fmt.Sprintf("%ssee whether the API server restarts (`kubectl get --raw /livez`) and whether %s speaks HTTPS", p.at(), p.address())
		}},
		{APIServerHTTP, "the API server answers with an HTTP error", func(p Params) string {
			return fmt.Sprintf("%s answered %s with HTTP %d", p.server(), p.request(), p.Status)
		}, func(p Params) string {
			return fmt.Sprintf("%srun `kubectl get --raw '/livez?verbose'` and fix what it names", p.at())
		}},
		{APIServerUnauthorized, "the API server does not accept the identity", func(p Params) string {
			if p.Token {
				return fmt.Sprintf("%s answered %s with HTTP 401: it does not know the token that %s issued to %s", p.server(), p.request(), p.owner(), p.client())
			}
			return fmt.Sprintf("%s answered %s with HTTP 401: it does not trust the issuer of %s identity", p.server(), p.request(), p.clients())
		}, func(p Params) string {
			if p.Token {
				return fmt.Sprintf("%ssee that %s leads to the cluster in which auth runs, and that the peer's ServiceAccount is there (`kubectl get serviceaccounts -A`)", p.at(), p.address())
			}
			return fmt.Sprintf("%sgive kube-apiserver the issuer's certificate (spec.services.auth.issuer.localCA.certFile) in --client-ca-file", p.at())
		}},
		{APIServerForbidden, "the identity is accepted but may do nothing", func(p Params) string {
			return fmt.Sprintf("%s accepted %s identity but answered %s with HTTP 403", p.server(), p.clients(), p.request())
		}, func(p Params) string {
			if p.Inbound {
				return fmt.Sprintf("there is nothing to fix unless %s is to see more: its user in the cluster is %s, and what that may is a decision made here (RBAC)", p.peer(), p.user())
			}
			return fmt.Sprintf("%srun %s", p.at(), p.bind())
		}},
		{APIServerOff, "the peer does not offer its API server to this gateway", func(p Params) string {
			return fmt.Sprintf("%s does not offer its API server to %s", p.owner(), p.client())
		}, func(p Params) string {
			if p.Inbound {
				return p.decided()
			}
			return fmt.Sprintf("if it should, %sset spec.services.apiServer and run %s", p.at(), p.allow("auth,apiServer"))
		}},
		{APIServerSlow, "the API server is slow", slowCause, slowFix},
	}
}

// address is the setting with the address that was dialled.
func (p Params) address() string {
	if p.Direct {
		return p.urlSetting()
	}
	return p.setting("address")
}

// measure adds how to measure the tunnel to a fix, where the tunnel is on the way.
func (p Params) measure(lead string) string {
	if p.Direct || p.Upstream != "" {
		return ""
	}
	return fmt.Sprintf("%s `postern ping %s --layer overlay`", lead, p.peer())
}

// userForm is that of users and of ServiceAccounts that gateways give to peers. What is shown
// in a command to paste has no other.
var userForm = regexp.MustCompile(`^(postern:peer|system:serviceaccount):[0-9a-z:-]{1,150}$`)

// user is the client's user at the API server, or how to find it.
func (p Params) user() string {
	if userForm.MatchString(p.User) {
		return p.User
	}
	return fmt.Sprintf("what `postern peer show %s` says", p.peer())
}

// bind is the command that lets the client's identity see something.
func (p Params) bind() string {
	if userForm.MatchString(p.User) {
		return fmt.Sprintf("`kubectl create clusterrolebinding NAME --clusterrole=view --user=%s`", p.User)
	}
	return fmt.Sprintf("`kubectl create clusterrolebinding NAME --clusterrole=view --user=USER`, USER being what `postern peer show NAME` says, NAME being %s name there", p.clients())
}

func slowCause(p Params) string {
	if p.waySlow() {
		return fmt.Sprintf("%s answered %s after %s, but connecting to it took %s already: it may be the way there that is slow",
			p.server(), p.request(), tenths(p.Took), tenths(p.Way))
	}
	return fmt.Sprintf("%s answered %s after %s; the way there and back takes %s of it", p.server(), p.request(), tenths(p.Took), tenths(p.Way))
}

func slowFix(p Params) string {
	if p.waySlow() {
		return fmt.Sprintf("%scompare with `kubectl get --raw /livez`%s", p.at(), p.measure(", and measure the tunnel with"))
	}
	return fmt.Sprintf("%srun `kubectl get --raw '/livez?verbose'` and look at the load of the API server and of etcd", p.at())
}

// tenths writes a duration to a tenth of a second, or to the millisecond below one.
func tenths(d time.Duration) string {
	if d < time.Second {
		return seconds(d)
	}
	return d.Round(100 * time.Millisecond).String()
}

// waySlow reports whether what is left without the way there and back is not slow.
func (p Params) waySlow() bool { return p.Took-p.Way < slowAnswer }
