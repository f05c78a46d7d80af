package kube

import (
	"net"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// dialTimeout bounds a connection attempt of [Cluster.Apart].
const dialTimeout = 2 * time.Second

// Apart returns the same cluster with its own connections. It is for a client whose requests must
// not wait behind others' hanging connection, and that wants to drop its own if it hangs
// ([Redial]).
func (c *Cluster) Apart() *Cluster {
	apart := *c
	apart.config = rest.CopyConfig(c.config)
	// Clients with their own dial function do not share connections.
	apart.config.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	return &apart
}

// Redial makes the next request of a client of [Cluster.Apart] use another connection, unless a
// request is in progress. client-go notices a dead connection only after 45 s.
func Redial(client rest.Interface) {
	if c, ok := client.(*rest.RESTClient); ok && c.Client != nil {
		utilnet.CloseIdleConnectionsFor(c.Client.Transport)
	}
}
