package predict

import "fmt"

// reach says whether a service can be reached outside the tunnel.
type reach struct {
	// reason says why it can be reached, following the service's name.
	reason string
	// lacks and fix are empty if nothing has to change.
	lacks, fix string
	answer     Answer
}

func reachable(format string, args ...any) reach { return reach{reason: fmt.Sprintf(format, args...)} }

func fails(lacks, fix string) reach   { return reach{lacks: lacks, fix: fix, answer: Fails} }
func depends(lacks, fix string) reach { return reach{lacks: lacks, fix: fix, answer: Conditional} }

// auth reports whether the auth service of x can be reached from another cluster.
func auth(x Exposure, other string, near bool) reach {
	s := x.Auth
	public := fmt.Sprintf("expose auth of %s by a LoadBalancer, an Ingress or a forwarded port, and set spec.peers[name=%s].outOfBand.authURL at %s to the public address", x.Name, x.Name, other)
	switch s.Exposure {
	case "":
		return depends("how auth is exposed is not known", public)
	case ClusterIP:
		return fails("auth is a ClusterIP, which only its own cluster reaches", public+"; or peer in-band")
	}
	at := atAddress(s, near)
	switch {
	case at == nearby:
		return fails(fmt.Sprintf("its %s address %s is private, and %s is not on its LAN", s.Exposure, s.Address, other), public+"; or peer in-band")
	case at == absent && s.Exposure == PortForwarding:
		return depends("the public address of the forwarded port is not given",
			fmt.Sprintf("forward a TCP port of %s's router to auth and announce it: spec.peers[name=%s].outOfBand.authURL at %s", x.Name, x.Name, other))
	case at == absent && s.Exposure == NodePort:
		return depends("the node's address is not given, and nodes' addresses are often private", public)
	case at == absent && s.Exposure == LoadBalancer:
		// This is the purpose of a LoadBalancer.
		return reachable("is reached by its LoadBalancer; let TCP to it through")
	case s.Exposure == Ingress && s.TLS == Terminated:
		return depends("its Ingress terminates TLS, and auth speaks TLS itself",
			fmt.Sprintf("at %s leave spec.services.auth.outOfBand.tls out, so that auth speaks HTTP behind the Ingress, or have the Ingress pass TLS through or encrypt it again", x.Name))
	case s.Exposure == Ingress && s.TLS == "":
		return depends("what its Ingress does with TLS is not known",
			fmt.Sprintf("have the Ingress of %s pass TLS through or encrypt it again, or leave spec.services.auth.outOfBand.tls out there", x.Name))
	}
	return reachable("is reached by its %s%s; let TCP to it through", s.Exposure, given(s.Address))
}

// apiServer reports whether the API server of x can be reached from another cluster.
func apiServer(x Exposure, other string, near bool) reach {
	s := x.APIServer
	public := fmt.Sprintf("give the API server of %s a public endpoint or a forwarded port, and set spec.peers[name=%s].outOfBand.apiServerURL at %s to it", x.Name, x.Name, other)
	at := atAddress(s, near)
	switch s.Exposure {
	case "":
		return depends("how the API server is exposed is not known", public)
	case Private:
		if near && s.Address != "" {
			return reachable("is reached at %s on the LAN; let TCP to it through", s.Address)
		}
		return fails("the API server has only a private endpoint", public+"; or peer in-band")
	case Provider:
		if at == nearby {
			return fails(fmt.Sprintf("the provider's endpoint %s is private", s.Address), "enable the provider's public endpoint, or peer in-band")
		}
		return reachable("is reached by the provider's endpoint%s", given(s.Address))
	}
	switch {
	case at == nearby:
		return fails(fmt.Sprintf("its address %s is private, and %s is not on its LAN", s.Address, other), public+"; or peer in-band")
	case at == absent && s.Exposure == PortForwarding:
		return depends("the public address of the forwarded port is not given",
			fmt.Sprintf("forward a TCP port of %s's router to port 6443 of a control-plane node and announce it: spec.peers[name=%s].outOfBand.apiServerURL at %s", x.Name, x.Name, other))
	case at == absent && s.Exposure == Public:
		return depends("its public address is not given; without one, the first control-plane node's is announced, which is often private",
			fmt.Sprintf("set spec.peers[name=%s].outOfBand.apiServerURL at %s to the public address", x.Name, other))
	case s.Exposure == APIServerIngress && s.TLS == Terminated:
		return fails("its Ingress terminates TLS, and with it the client certificate by which a peer is known",
			fmt.Sprintf("have the Ingress of %s pass TLS through to the API server (ingress-nginx: annotation nginx.ingress.kubernetes.io/ssl-passthrough), or peer in-band", x.Name))
	case s.Exposure == APIServerIngress && s.TLS != Passthrough:
		return depends("client certificates reach the API server only through an Ingress that passes TLS on",
			fmt.Sprintf("have the Ingress of %s pass TLS through (ingress-nginx: annotation nginx.ingress.kubernetes.io/ssl-passthrough)", x.Name))
	}
	return reachable("is reached%s; let TCP to it through", given(s.Address))
}

// atAddress returns from where the service's address can be dialled, seen from the other cluster.
func atAddress(s Service, near bool) scope {
	at := scopeOf(s.Address)
	if at == nearby && near {
		return anywhere
	}
	return at
}

func given(address string) string {
	if address == "" {
		return ""
	}
	return " at " + address
}
