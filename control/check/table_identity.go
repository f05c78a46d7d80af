package check

import (
	"fmt"
)

// identityEntries are the codes of TLS with the peer's API server and of the identity
// shown there.
func identityEntries() []Entry {
	return []Entry{
		{TLSUnknownCA, "the API server's certificate is signed by an unknown authority", func(p Params) string {
			return detail(fmt.Sprintf("the API server of %s shows a certificate signed by %s, which is not the authority that %s announced",
				p.Peer, or(p.Issuer, "an unknown authority"), p.Peer), p)
		}, func(p Params) string {
			return fmt.Sprintf("at %s set spec.services.apiServer.caFile to the PEM file of that authority (kubeadm: /etc/kubernetes/pki/ca.crt)", p.Peer)
		}},
		{TLSWrongName, "the API server's certificate is for another name", func(p Params) string {
			return fmt.Sprintf("the certificate of the API server of %s is valid for %s, not for %s", p.Peer, or(list(p.Names), "no name"), or(p.ServerName, "the expected name"))
		}, func(p Params) string {
			return fmt.Sprintf("at %s set spec.services.apiServer.serverName to one of those names", p.Peer)
		}},
		{TLSNotValidNow, "the API server's certificate is not valid at this time", func(p Params) string {
			return fmt.Sprintf("the certificate of the API server of %s is valid from %s to %s", p.Peer, day(p.NotBefore), day(p.NotAfter))
		}, func(p Params) string {
			return fmt.Sprintf("compare the clocks with `date -u` here and at %s; if they agree, renew the certificate there (kubeadm certs renew apiserver)", p.Peer)
		}},
		{TLSFailed, "TLS with the API server fails", func(p Params) string {
			return detail(fmt.Sprintf("TLS with the API server of %s at %s failed", p.Peer, p.Address), p)
		}, func(p Params) string {
			return fmt.Sprintf("see that spec.services.apiServer.address at %s is an HTTPS port", p.Peer)
		}},
		{IdentityMissing, "no identity has been issued", func(p Params) string {
			return detail(fmt.Sprintf("%s has issued no identity to this gateway, and its API server demands one (HTTP %d)", p.Peer, p.Status), p)
		}, func(p Params) string {
			return fmt.Sprintf("at %s set spec.services.auth.issuer and run `postern peer allow NAME auth,apiServer`, NAME being this gateway's name there", p.Peer)
		}},
		{IdentityExpired, "the identity has expired", func(p Params) string {
			return detail(fmt.Sprintf("the identity that %s issued to this gateway was valid until %s", p.Peer, day(p.NotAfter)), p)
		}, func(p Params) string {
			return fmt.Sprintf("mend auth of %s first (`postern ping %s --layer auth`); the identity is renewed as soon as it answers", p.Peer, p.Peer)
		}},
		{IdentityRejected, "the API server rejects the client certificate", func(p Params) string {
			return detail(fmt.Sprintf("the API server of %s ended TLS over the client certificate", p.Peer), p)
		}, func(p Params) string {
			return fmt.Sprintf("at %s give the API server the issuer's certificate (spec.services.auth.issuer.localCA.certFile) in --client-ca-file", p.Peer)
		}},
	}
}
