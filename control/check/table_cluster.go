package check

import (
	"fmt"
	"strings"
)

// clusterEntries are the codes of how a gateway is exposed by its cluster.
func clusterEntries() []Entry {
	return []Entry{
		{LoadBalancerPending, "the LoadBalancer has no address", func(p Params) string {
			return detail(fmt.Sprintf("%s is of type LoadBalancer and has no address%s: no controller of the cluster gives addresses, or it cannot, so nobody outside can dial this gateway",
				p.placed("the Service"), p.lasting("for")), p)
		}, func(p Params) string {
			return fmt.Sprintf("where nothing gives addresses choose NodePort: %s; else its events say why: `kubectl describe %s%s`",
				helmType(p, "NodePort"), p.kubectlObject("service NAME"), p.inNamespace())
		}},
		{NodePortPrivate, "no node address leads here from outside", nodePortCause, nodePortFix},
		{ServiceMissing, "the gateway's Service is missing", func(p Params) string {
			return fmt.Sprintf("%s, by which peers are to reach this gateway, is not there", p.placed("the Service"))
		}, func(p Params) string {
			return fmt.Sprintf("make it again with `helm upgrade`, or name the right one in spec.kubernetes.service: `kubectl get services%s` lists them", p.inNamespace())
		}},
		{ServicePort, "no port of the Service leads to the gateway", func(p Params) string {
			return fmt.Sprintf("%s has %s, and none that leads UDP to port %s, where this gateway listens",
				p.placed("the Service"), or(p.Detail, "no port"), p.ownPort())
		}, func(p Params) string {
			return fmt.Sprintf("give it a port with protocol: UDP and targetPort: %s: `kubectl edit %s%s`", p.ownPort(), p.kubectlObject("service NAME"), p.inNamespace())
		}},
		{NoUDPWay, "the gateway is exposed by what carries no UDP", func(p Params) string {
			if strings.HasPrefix(p.Object, "Ingress") {
				return fmt.Sprintf("%s leads to the Service of this gateway: an Ingress carries HTTP, and UDP cannot pass it", p.placed("an Ingress"))
			}
			return fmt.Sprintf("%s is of type %s, which is an alias in DNS: no packet comes to this gateway by it", p.placed("the Service"), or(p.Detail, "ExternalName"))
		}, func(p Params) string {
			first := ""
			if strings.HasPrefix(p.Object, "Ingress") {
				first = fmt.Sprintf("`kubectl delete %s%s`, and ", p.kubectlObject("ingress NAME"), p.inNamespace())
			}
			return fmt.Sprintf("%sexpose the gateway by a LoadBalancer or a NodePort: %s", first, helmType(p, "LoadBalancer"))
		}},
		{ExposureUnknown, "the cluster does not tell how the gateway is exposed", func(p Params) string {
			return detail(fmt.Sprintf("this gateway may not %s %s, and so does not know the addresses that lead to it", or(p.Verbs, "read"), or(p.Resource, "Services and nodes")), p)
		}, func(p Params) string {
			return "give it that right: " + permit(p) + ", or have `helm upgrade` do so; or set spec.discovery.advertise"
		}},
		{HostPortRefused, "the namespace refuses the gateway's hostPort", func(p Params) string {
			return detail(fmt.Sprintf("%s asks for a hostPort, which the Pod Security level of its namespace does not admit: no pod of this gateway starts there", p.placed("the StatefulSet")), p)
		}, func(p Params) string {
			return fmt.Sprintf("expose it by a Service instead: `helm upgrade RELEASE CHART%s --reuse-values --set hostPort=null`; or use a namespace whose pod-security.kubernetes.io/enforce is privileged", p.inNamespace())
		}},
		{APIServerUnlocated, "the API server's address for peers is not known", func(p Params) string {
			return detail("this gateway's cluster does not say where its API server is for others: kube-public has no cluster-info, and no control-plane node is listed (managed clusters keep them to themselves)", p)
		}, func(Params) string {
			return "managed cluster: set spec.services.apiServer.address to the endpoint that the provider names (`kubectl cluster-info` from outside shows it), and announce it to out-of-band peers as spec.peers[].outOfBand.apiServerURL; in-band peers need nothing"
		}},
		{ExposureMoved, "the addresses of this gateway have changed", func(p Params) string {
			return fmt.Sprintf("this gateway could be dialled at %s%s, and now can at %s: connected peers have been told, others dial the old address",
				or(list(p.Was), "no address"), untilSeen(p), or(list(p.Now), "none"))
		}, func(Params) string {
			return "see with `postern peer list` who does not come back; there, correct spec.peers[].endpoints, or enrol it again with `postern invite`"
		}},
		{PodRefused, "a pod may not use a peer's Service", func(p Params) string {
			return fmt.Sprintf("a connection from %s to %s of %s was reset: %s", or(p.From, "an address"), or(p.Service, "a service"), p.peer(), or(p.Detail, "it is not from a pod with the label"))
		}, func(p Params) string {
			label := "postern.dev/peer-" + or(p.Peer, "NAME")
			return fmt.Sprintf("if that pod may use it, set the label %s: allow in its template (for one that runs: `kubectl label pod POD -n NAMESPACE %s=allow`)", label, label)
		}},
	}
}

// nodePortCause: nodes with private addresses, or none at all.
func nodePortCause(p Params) string {
	if len(p.Candidates) == 0 {
		return detail(fmt.Sprintf("%s is a NodePort, and no node with an address leads to this gateway", p.placed("the Service")), p)
	}
	var found []string
	for _, c := range p.Candidates {
		found = append(found, joined(c.Address, " (", c.Reason, ")"))
	}
	return fmt.Sprintf("%s is a NodePort, and its nodes have private addresses alone: %s; only peers in their network can dial this gateway", p.placed("the Service"), list(found))
}

func nodePortFix(p Params) string {
	port := p.ownPort()
	if len(p.Candidates) > 0 {
		port = or(portOf(p.Candidates[0].Address), port)
	}
	return fmt.Sprintf("if peers elsewhere must dial it, forward UDP %s on the router to a node and set spec.discovery.advertise: [\"PUBLIC-IP:%s\"]; in a cloud give it a LoadBalancer: %s; nothing is to be done where this gateway dials its peers",
		port, port, helmType(p, "LoadBalancer"))
}

// untilSeen is when addresses were last good.
func untilSeen(p Params) string {
	if p.Seen.IsZero() {
		return ""
	}
	return " until " + day(p.Seen)
}

// helmType is the command that changes the Service's type.
func helmType(p Params, to string) string {
	return fmt.Sprintf("`helm upgrade RELEASE CHART%s --reuse-values --set service.type=%s`", p.inNamespace(), to)
}

// kubectlObject is the object in kubectl's words: "service postern".
func (p ClusterParams) kubectlObject(otherwise string) string {
	kind, name, ok := strings.Cut(p.Object, " ")
	if !ok || strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}) {
		return otherwise
	}
	return strings.ToLower(kind) + " " + name
}

// permit is what gives the gateway the right that it lacks.
func permit(p Params) string {
	verbs, resource := or(strings.ReplaceAll(p.Verbs, " ", ""), "get,list,watch"), or(p.Resource, "RESOURCE")
	kind, scope := "clusterrole", ""
	if p.Namespace != "" {
		kind, scope = "role", p.inNamespace()
	}
	name := "postern-" + strings.ReplaceAll(strings.ReplaceAll(resource, "/", "-"), ".", "-")
	return fmt.Sprintf("`kubectl create %s %s%s --verb=%s --resource=%s && kubectl create %sbinding %s%s --%s=%s --serviceaccount=%s`",
		kind, name, scope, verbs, resource, kind, name, scope, kind, name, or(p.Account, "NAMESPACE:ACCOUNT"))
}
