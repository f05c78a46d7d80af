package check

import (
	"fmt"
	"slices"
	"strings"
)

// identityEntries are the codes of TLS with a service, and of the identity shown there.
func identityEntries() []Entry {
	return []Entry{
		{TLSUnknownCA, "the certificate is signed by an unknown authority", func(p Params) string {
			return detail(fmt.Sprintf("%s shows%s a certificate signed by %s, but %s", p.server(), p.toClient(), or(p.Issuer, "an unknown authority"), p.trusted()), p)
		}, unknownCAFix},
		{TLSWrongName, "the certificate is for another name", func(p Params) string {
			return fmt.Sprintf("the certificate that %s shows%s is valid for %s, not for %s", p.server(), p.toClient(), or(list(p.Names), "no name"), or(p.ServerName, "the expected name"))
		}, wrongNameFix},
		{TLSNotValidNow, "the certificate is not valid at this time", func(p Params) string {
			return fmt.Sprintf("the certificate that %s shows%s is valid from %s to %s", p.server(), p.toClient(), day(p.NotBefore), day(p.NotAfter))
		}, func(p Params) string {
			clocks := "compare the clock of this machine with others' (`date -u`)"
			if p.Peer != "" {
				clocks = fmt.Sprintf("compare the clocks with `date -u` here and at %s", p.Peer)
			}
			return fmt.Sprintf("%s; if they agree, %srenew the certificate%s", clocks, p.at(), p.kubeadm(" (kubeadm certs renew apiserver)"))
		}},
		{TLSFailed, "TLS fails", func(p Params) string {
			return detail(fmt.Sprintf("TLS%s with %s failed", p.ofClient(), p.server()), p)
		}, func(p Params) string {
			if p.Direct {
				return fmt.Sprintf("see that %s leads to an HTTPS port", p.urlSetting())
			}
			return fmt.Sprintf("%ssee that %s is an HTTPS port", p.at(), p.setting("address"))
		}},
		{IdentityMissing, "no identity has been issued", func(p Params) string {
			how := ""
			if p.Status != 0 {
				how = fmt.Sprintf(" (HTTP %d)", p.Status)
			}
			return detail(fmt.Sprintf("%s has issued no identity to %s, and its API server%s demands one%s", p.owner(), p.client(), p.where(), how), p)
		}, func(p Params) string {
			if p.Inbound {
				return fmt.Sprintf("here set spec.services.auth.issuer; if it is set, the log of this gateway says why it issues nothing to %s", p.peer())
			}
			return fmt.Sprintf("%sset spec.services.auth.issuer and run %s", p.at(), p.allow("auth,apiServer"))
		}},
		{IdentityExpired, "the identity has expired", func(p Params) string {
			return detail(fmt.Sprintf("the identity that %s issued to %s was valid until %s", p.owner(), p.client(), day(p.NotAfter)), p)
		}, func(p Params) string {
			if p.Inbound {
				return fmt.Sprintf("see in the log of this gateway why it issues no new one to %s, and fix spec.services.auth.issuer: a localCA's own certificate may have expired "+
					"(`openssl x509 -noout -enddate -in FILE` of localCA.certFile); the identity is renewed as soon as that works", p.peer())
			}
			return fmt.Sprintf("see that auth of %s answers (`postern ping %s --layer auth`); if it does, its log says why it issues no new one: fix spec.services.auth.issuer there; "+
				"the identity is renewed as soon as that works", p.peer(), p.peer())
		}},
		{IdentityRejected, "the API server rejects the client certificate", func(p Params) string {
			return detail(fmt.Sprintf("%s ended TLS over %s certificate", p.server(), p.clients()), p)
		}, func(p Params) string {
			return fmt.Sprintf("%sgive the API server the issuer's certificate (spec.services.auth.issuer.localCA.certFile) in --client-ca-file", p.at())
		}},
	}
}

// trusted says who should have signed, and who says so.
func (p Params) trusted() string {
	switch {
	case len(p.Authorities) == 0 && p.Direct:
		return fmt.Sprintf("this machine trusts no such authority and %s names none", p.outOfBand("caFile"))
	case p.Direct:
		return fmt.Sprintf("%s holds %s", p.outOfBand("caFile"), list(p.Authorities))
	case len(p.Authorities) == 0:
		return p.owner() + " announces no authority"
	}
	return fmt.Sprintf("%s announces %s", p.owner(), list(p.Authorities))
}

func unknownCAFix(p Params) string {
	if p.Direct {
		return fmt.Sprintf("here set %s to the PEM file of the authority that signed it%s", p.outOfBand("caFile"),
			p.kubeadm(fmt.Sprintf(" (kubeadm: /etc/kubernetes/pki/ca.crt at %s)", p.owner())))
	}
	return fmt.Sprintf("%sset spec.services.apiServer.caFile to the PEM file of the authority that signed it (kubeadm: /etc/kubernetes/pki/ca.crt)", p.at())
}

// wrongNameFix offers a name of the certificate where it is a plain host name and the right
// authority signed it: whatever else a certificate of somebody else's carries, or a peer's
// report of one, is shown as a value, but nothing to paste.
func wrongNameFix(p Params) string {
	name := ""
	if p.Signed {
		name = bestName(p.Names)
	}
	switch {
	case p.Direct && name == "":
		return fmt.Sprintf("see that %s leads to the right server; if it does, set the host in it to a name in the certificate, or have a certificate made for %s",
			p.urlSetting(), or(p.ServerName, "the present one"))
	case p.Direct:
		return fmt.Sprintf("here set the host in %s to %s, or have a certificate made for %s", p.urlSetting(), name, or(p.ServerName, "the present one"))
	case name == "" && p.Inbound && p.Peer != "":
		return "here set spec.services.apiServer.serverName to a name in the certificate: `postern check` here shows them (upstream-apiServer)"
	case name == "":
		return fmt.Sprintf("%sset spec.services.apiServer.serverName to a name in the certificate", p.at())
	}
	return fmt.Sprintf("%sset spec.services.apiServer.serverName: %s", p.at(), name)
}

// bestName is the name every Kubernetes API server has, if the certificate carries it, or
// the first that is a plain one.
func bestName(names []string) string {
	if slices.Contains(names, DefaultServerName) {
		return DefaultServerName
	}
	for _, n := range names {
		if plainHost(n) {
			return n
		}
	}
	return ""
}

// plainHost reports whether a name is a host name or IP address of letters, digits, dots,
// colons and hyphens, beginning with a letter or digit.
func plainHost(s string) bool {
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && len(s) <= 253 && strings.Contains(digits+letters, s[:1]) && strings.Trim(s, digits+letters+".:-") == ""
}

// kubeadm adds where kubeadm keeps something, for API servers.
func (p Params) kubeadm(text string) string {
	if p.Service == "auth" {
		return ""
	}
	return text
}
