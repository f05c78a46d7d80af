package check

import "fmt"

// csrManifest is what gives the rights that requests for certificates take, and the guard.
const csrManifest = "cmd/postern/deploy/rbac/csr-policy.yaml"

// csrEntries are the codes of identities that the gateway's own cluster signs.
func csrEntries() []Entry {
	return []Entry{
		{CSRDenied, "the cluster denied a peer's certificate request", func(p Params) string {
			return detail(fmt.Sprintf("the cluster of %s denied the certificate request%s, so it gets no identity", thisGateway, p.requestOf()), p)
		}, func(p Params) string {
			return fmt.Sprintf("ask whoever denied it: `kubectl describe csr %s`; it is recreated after five minutes, or at once after `kubectl delete csr %s`", p.csrName(), p.csrName())
		}},
		{CSRFailed, "the cluster's signer refuses client certificates", func(p Params) string {
			return detail(fmt.Sprintf("the signer of the cluster of %s failed the certificate request%s", thisGateway, p.requestOf()), p)
		}, func(p Params) string {
			return fmt.Sprintf("see `kubectl describe csr %s`; managed clusters often sign no client certificates: there set spec.services.auth.issuer to serviceAccount", p.csrName())
		}},
		{CSRUnsigned, "nothing signs a peer's certificate request", func(p Params) string {
			return detail(fmt.Sprintf("the certificate request%s was approved by %s, and nothing in its cluster has signed it within 15 s", p.requestOf(), thisGateway), p)
		}, func(p Params) string {
			return fmt.Sprintf("see that kube-controller-manager runs and has --cluster-signing-cert-file: `kubectl describe csr %s`; in a managed cluster set spec.services.auth.issuer to serviceAccount", p.csrName())
		}},
		{CSRUnguarded, "no policy guards certificate requests", func(p Params) string {
			return fmt.Sprintf("the cluster of %s would let its account have certificates for users that are not its peers, be it another gateway's or an administrator: no policy keeps it to its own, so nothing is issued", thisGateway)
		}, func(Params) string {
			return "apply the policy: `kubectl apply -f " + csrManifest + "`, with the gateway's own namespace, account and name in it (`helm upgrade` where the chart made it); one of an earlier version, which knew no gateway's name, has to be replaced"
		}},
		{CSRForbidden, "the gateway may not make certificate requests", func(p Params) string {
			return detail(fmt.Sprintf("%s may not %s %s in its cluster, so peers get no identities", thisGateway, or(p.Verbs, "use"), or(p.Resource, "certificatesigningrequests")), p)
		}, func(Params) string {
			return "apply its ClusterRole: `kubectl apply -f " + csrManifest + "`, or `helm upgrade` where the chart made it"
		}},
	}
}

// csrName is the request's name, to be pasted.
func (p Params) csrName() string { return or(p.Object, "NAME") }

// requestOf is the request and whose it is, for a sentence.
func (p Params) requestOf() string {
	text := ""
	if p.Object != "" {
		text = " " + p.Object
	}
	if p.Peer != "" {
		text += " of peer " + p.Peer
	}
	return text
}
