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

// apiServerPort is where kubeadm, k3s and kind have their API servers listen.
const apiServerPort = "6443"

// location is what the cluster says of where its API server is.
type location struct {
	Endpoint
	// asked: it was asked, and Address is empty because it does not say.
	asked bool
	// denied says in words what this gateway may not read.
	denied string
}

// apiServer takes the address of the configuration before what the cluster says.
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

// ofClusterInfo reads the kubeconfig of kube-public's cluster-info (kubeadm writes it for
// nodes that are to join).
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

// ofURL is the host, and the address with a port, of a URL that a kubeconfig has for an API
// server. What Go takes for a URL need not be one that can be dialled: "A00://]" has the host ].
func ofURL(server string) (host, address string, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", "", fmt.Errorf("%q is no URL", server)
	}
	host, address = u.Hostname(), net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
	return host, address, config.CheckDialAddress(address)
}

// ofControlPlane takes the first node of the control plane: the one that was made first.
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
