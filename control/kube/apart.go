package kube

import (
	"net"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// dialTimeout bounds a connection attempt of [Cluster.Apart].
const dialTimeout = 2 * time.Second

// Apart is the same cluster over connections that are shared with nobody: for one whose
// requests must not wait behind a connection that hangs for others, and that wants to drop
// its own when it does ([Redial]).
func (c *Cluster) Apart() *Cluster {
	apart := *c
	apart.config = rest.CopyConfig(c.config)
	// Clients that dial by themselves are not given the connections of others.
	apart.config.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	return &apart
}

// Redial has the next request of a client of [Cluster.Apart] use another connection, unless
// a request is in progress. client-go notices only after 45 s that a connection leads nowhere.
func Redial(client rest.Interface) {
	if c, ok := client.(*rest.RESTClient); ok && c.Client != nil {
		utilnet.CloseIdleConnectionsFor(c.Client.Transport)
	}
}
