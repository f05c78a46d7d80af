package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Defaults of a gateway in a cluster.
const (
	DefaultRelease = "postern"
	// DefaultLeaseSeconds leaves two of the ten seconds that a failover may take for the new
	// gateway's start.
	DefaultLeaseSeconds = 8
)

const (
	// A lease shorter than minLeaseSeconds is lost in every hiccup of the API server, and with one
	// longer than maxLeaseSeconds a standby would be useless.
	minLeaseSeconds = 4
	maxLeaseSeconds = 120
	// maxRelease leaves room for the suffixes of object names, of at most 63 characters:
	// "-state-identities" is the longest.
	maxRelease = 40
)

// fillKubernetes sets what is unset.
func (c *checker) fillKubernetes(k *api.Kubernetes) {
	if k.Release == "" {
		k.Release = DefaultRelease
	}
	if k.Service == "" {
		k.Service = k.Release
	}
	if k.PeerServices == nil {
		yes := true
		k.PeerServices = &yes
	}
	if k.LeaseSeconds == 0 && !c.given("spec.kubernetes.leaseSeconds") {
		k.LeaseSeconds = DefaultLeaseSeconds
	}
}

func (c *checker) kubernetes(at string, k *api.Kubernetes) *Kubernetes {
	if !isNamespace(k.Release) || len(k.Release) > maxRelease {
		c.fail(at+".release", "%q cannot begin the names of objects (want at most %d lower-case letters, digits and hyphens)", k.Release, maxRelease)
	}
	if !isNamespace(k.Service) {
		c.fail(at+".service", "%q is not a Service name (want at most %d lower-case letters, digits and hyphens)", k.Service, maxNamespace)
	}
	if k.LeaseSeconds < minLeaseSeconds || k.LeaseSeconds > maxLeaseSeconds {
		c.fail(at+".leaseSeconds", "%d is outside %d to %d", k.LeaseSeconds, minLeaseSeconds, maxLeaseSeconds)
	}
	c.namespaces(at+".peerServicesFrom", k.PeerServicesFrom)
	return &Kubernetes{
		Release: k.Release, Service: k.Service, PeerServices: *k.PeerServices, PeerServicesFrom: k.PeerServicesFrom,
		MCS: c.mcs(at+".mcs", k.MCS), Lease: time.Duration(k.LeaseSeconds) * time.Second,
	}
}

func (c *checker) namespaces(at string, names []string) {
	for i, namespace := range names {
		if !isNamespace(namespace) {
			c.fail(fmt.Sprintf("%s[%d]", at, i), "%q is not a valid namespace name (want at most %d lower-case letters, digits and hyphens)", namespace, maxNamespace)
		}
	}
}

func (c *checker) mcs(at string, m *api.MCS) *MCS {
	if m == nil {
		return nil
	}
	if m.AllNamespaces == (len(m.Namespaces) > 0) {
		c.fail(at, "set either namespaces or allNamespaces: true")
	}
	c.namespaces(at+".namespaces", m.Namespaces)
	out := &MCS{Namespaces: slices.Compact(slices.Sorted(slices.Values(m.Namespaces)))}
	if m.DNS != nil {
		c.listenAddress(at+".dns.listen", m.DNS.Listen)
		out.DNS = m.DNS.Listen
	}
	return out
}

// WithPeers returns the configuration with a cluster's peers, which no file has.
func (r *Resolved) WithPeers(peers []Peer) *Resolved {
	next := *r
	next.Peers = slices.Clone(peers)
	return &next
}

// WithPeersOf returns the configuration with the cluster's peers of another one; outside a cluster
// it returns the configuration itself.
func (r *Resolved) WithPeersOf(other *Resolved) *Resolved {
	if r.Kubernetes == nil {
		return r
	}
	return r.WithPeers(other.Peers)
}
