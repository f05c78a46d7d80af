package exposure

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
)

// apiServerPort is the API server's port with kubeadm, k3s and kind.
const apiServerPort = "6443"

// location is the API server's location according to the cluster.
type location struct {
	Endpoint
	// asked: the cluster has answered; an empty Address means that it does not say.
	asked bool
	// denied says in words what could not be read, usually for lack of a permission.
	denied string
}

// apiServer prefers the address of the configuration to that of the cluster.
func (f facts) apiServer(d *derived) {
	if f.configured != "" {
		d.APIServer = Endpoint{Address: f.configured, From: "spec.services.apiServer of the configuration"}
		return
	}
	d.APIServer = f.located.Endpoint
	if d.APIServer.Address != "" || !f.located.asked || d.Auth.Exposure == "" {
		return // known, not known yet, or nobody needs it: in-band peers come through the tunnel
	}
	var p catalogue.Params
	p.Detail = f.located.denied
	d.problem(NameAPIServer, catalogue.APIServerUnlocated, p)
}

// ofClusterInfo parses the kubeconfig in kube-public's cluster-info (kubeadm writes it for
// joining nodes).
func ofClusterInfo(kubeconfig string) (Endpoint, error) {
	c, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return Endpoint{}, fmt.Errorf("read cluster-info's kubeconfig: %w", err)
	}
	for _, cluster := range c.Clusters {
		host, address, err := ofURL(cluster.Server)
		if err != nil {
			return Endpoint{}, fmt.Errorf("cluster-info's server: %w", err)
		}
		return Endpoint{Address: address, From: "ConfigMap cluster-info in kube-public" + note(host)}, nil
	}
	return Endpoint{}, fmt.Errorf("cluster-info names no cluster")
}

// ofURL returns the host and the address with a port of a kubeconfig's API server URL. A URL that
// Go accepts may still be invalid as an address: "A00://]" has the host ].
func ofURL(server string) (host, address string, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", "", fmt.Errorf("%q is no URL", server)
	}
	host, address = u.Hostname(), net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
	return host, address, config.CheckDialAddress(address)
}

// ofControlPlane returns the API server at the oldest control plane node with an internal address.
func ofControlPlane(nodes []corev1.Node) Endpoint {
	slices.SortFunc(nodes, func(a, b corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				return Endpoint{Address: net.JoinHostPort(a.Address, apiServerPort), From: fmt.Sprintf("InternalIP of control-plane node %s%s", n.Name, note(a.Address))}
			}
		}
	}
	return Endpoint{}
}
