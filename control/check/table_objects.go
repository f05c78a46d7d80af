package check

import "fmt"

// accountManifest is what keeps the gateway's account to what a gateway writes.
const accountManifest = "cmd/postern/deploy/rbac/gateway-policy.yaml"

// objectEntries are the codes of Peers and Tickets in a cluster.
func objectEntries() []Entry {
	return append(clusterAccessEntries(), []Entry{
		{PeerRefused, "a Peer object cannot be taken as it is", func(p Params) string {
			return detail(fmt.Sprintf("%s is not in force in %s", p.placed("a Peer"), thisGateway), p)
		}, func(p Params) string {
			return fmt.Sprintf("correct it: `kubectl edit peers.postern.dev %s%s`; the other peers are not affected", or(p.Peer, "NAME"), p.inNamespace())
		}},
		{PeerDuplicate, "a Peer has the key of another", func(p Params) string {
			return detail(fmt.Sprintf("%s is not in force in %s: %s is that of %s", p.placed("a Peer"), thisGateway, joined("its key", " ", p.Key, ""), or(p.Upstream, "another")), p)
		}, func(p Params) string {
			return fmt.Sprintf("every gateway has a key of its own, which `postern key pub` prints there: `kubectl edit peers.postern.dev %s%s`, or delete the one that is not needed", or(p.Peer, "NAME"), p.inNamespace())
		}},
		{SecretUnusable, "a Secret that a Peer or Ticket needs cannot be used", func(p Params) string {
			return detail(fmt.Sprintf("%s needs the key %s of Secret %s, which %s cannot use", p.placed("an object"), or(p.Field, "?"), or(p.File, "?"), thisGateway), p)
		}, func(p Params) string {
			return fmt.Sprintf("see what is in it: `kubectl describe secret %s%s`; it is looked at again within a few minutes, and at once when the object is changed", or(p.File, "NAME"), p.inNamespace())
		}},
		{TicketRefused, "nothing can come of a Ticket", func(p Params) string {
			return detail(fmt.Sprintf("%s has failed at %s", p.placed("a Ticket"), thisGateway), p)
		}, func(p Params) string {
			return fmt.Sprintf("delete it and make another: `kubectl delete tickets.postern.dev %s%s`", or(p.Field, "NAME"), p.inNamespace())
		}},
		{PeerNotInState, "a Peer that joined is not known to the gateway any more", func(p Params) string {
			return fmt.Sprintf("%s joined by ticket or command, and %s has nothing of what was agreed with it: it was removed, or the gateway's state is not what it was", p.placed("a Peer"), thisGateway)
		}, func(p Params) string {
			return fmt.Sprintf("enrol it again after `kubectl delete peers.postern.dev %s%s`; or, to peer by its key alone, take the label postern.dev/origin away at both ends", or(p.Peer, "NAME"), p.inNamespace())
		}},
		{GrantWithoutUse, "a Peer is granted what there is not", func(p Params) string {
			return detail(fmt.Sprintf("%s grants %s, which %s does not offer; the rest of it is in force", p.placed("a Peer"), or(p.Service, "a service"), thisGateway), p)
		}, func(Params) string {
			return "offer the service in spec.services.named of the gateway's configuration, or take it out of spec.allow of the Peer"
		}},
		{AccountUnbounded, "no policy bounds the gateway's account", func(p Params) string {
			return detail(fmt.Sprintf("no admission policy keeps the account %s of %s to what a gateway writes, so whoever has its token can do more", or(p.Account, "?"), thisGateway), p)
		}, func(p Params) string {
			return "apply the policy: `helm upgrade RELEASE CHART" + p.inNamespace() + " --reuse-values --set rbac.policy=true`, or `kubectl apply -f " + accountManifest + "` with the gateway's own namespace and account in it"
		}},
	}...)
}

// clusterAccessEntries are the codes of what keeps a gateway from its cluster's API.
func clusterAccessEntries() []Entry {
	return []Entry{
		{CRDMissing, "the cluster does not know Peers and Tickets", func(p Params) string {
			return detail(fmt.Sprintf("the API server has no resource %s.postern.dev: the definitions are not installed, so %s takes no peers from the cluster", or(p.Resource, "peers"), thisGateway), p)
		}, func(Params) string {
			return "install them, of the same release as the gateway: `kubectl apply --server-side -f cmd/postern/deploy/chart/definitions`, or have `helm upgrade` do so"
		}},
		{ClusterForbidden, "the gateway may not use what it needs of its cluster", func(p Params) string {
			return detail(fmt.Sprintf("%s may not %s %s in namespace %s of its cluster", thisGateway, or(p.Verbs, "use"), or(p.Resource, "what it needs"), or(p.Namespace, "?")), p)
		}, func(p Params) string {
			return fmt.Sprintf("have its Role made again: `helm upgrade RELEASE CHART%s --reuse-values`; or %s", p.inNamespace(), permit(p))
		}},
		{ClusterSilent, "the gateway's own API server does not answer", func(p Params) string {
			return detail(fmt.Sprintf("%s cannot ask its cluster for %s: peers go on as they are, and what is changed of them takes effect when it can", thisGateway, or(p.Resource, "peers")), p)
		}, func(Params) string {
			return "see that the API server answers and that no NetworkPolicy keeps the gateway's pod from it: `kubectl get --raw /readyz`"
		}},
	}
}
