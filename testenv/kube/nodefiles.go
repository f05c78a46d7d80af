//go:build linux

package kube

import (
	"fmt"
	"os"
	"path/filepath"
)

// agents are the components with a kubeconfig. Their certificate files have the same names.
var agents = []string{"kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}

// identities are the paths of the files that a node needs besides the control plane's.
type identities struct {
	authorityKey                 string
	apiClientCert, apiClientKey  string // the API server's client certificate for the kubelet
	kubeletServing, kubeletSvKey string
}

// writeIdentities creates the certificates of a node's components.
func (c *Cluster) writeIdentities(o NodeOptions) (identities, error) {
	var id identities
	users := map[string][2]string{ // user and group
		"kube-controller-manager": {"system:kube-controller-manager"},
		"kube-scheduler":          {"system:kube-scheduler"},
		"kube-proxy":              {"system:kube-proxy"},
		"kubelet":                 {"system:node:" + o.Name, "system:nodes"},
	}
	for _, name := range agents {
		if _, _, err := c.writeClient(name, users[name][0], users[name][1]); err != nil {
			return id, err
		}
	}
	var err error
	if id.apiClientCert, id.apiClientKey, err = c.writeClient("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"); err != nil {
		return id, err
	}
	serving, err := c.ca.Server(o.Name, o.NodeAddress.String())
	if err != nil {
		return id, err
	}
	if id.kubeletServing, id.kubeletSvKey, err = serving.Write(c.pkiDir(), "kubelet-serving"); err != nil {
		return id, err
	}
	authority, err := c.ca.Pair()
	if err != nil {
		return id, err
	}
	_, id.authorityKey, err = authority.Write(c.pkiDir(), "ca")
	return id, err
}

// writeKubeletConfig writes the kubelet's configuration and returns its path.
func (c *Cluster) writeKubeletConfig(o NodeOptions, id identities) (string, error) {
	dir := c.options.Dir
	// Pods must not use the test machine's own name servers, not even those in the host's
	// network.
	resolv := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolv, fmt.Appendf(nil, "nameserver %s\n", o.NodeAddress), 0o644); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubelet.yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
containerRuntimeEndpoint: %q
cgroupDriver: cgroupfs
cgroupRoot: %q
failCgroupV1: false # the default since 1.35 is to refuse it
enforceNodeAllocatable: []
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [%q]
resolvConf: %q
podLogsDir: %q
# A full disk of the test machine is no reason to evict pods.
evictionHard: {nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
imageGCHighThresholdPercent: 100
`, filepath.Join(c.pkiDir(), "ca.crt"), id.kubeletServing, id.kubeletSvKey, "unix://"+containerdSocket,
		"/"+cgroupLabel+c.options.Namespace, o.NodeAddress, resolv, filepath.Join(dir, "podlogs")), 0o644)
}

// writeProxyConfig writes kube-proxy's configuration and returns its path.
func (c *Cluster) writeProxyConfig(o NodeOptions, kubeconfig string) (string, error) {
	path := filepath.Join(c.options.Dir, "kube-proxy.yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: %q
hostnameOverride: %q
clientConnection: {kubeconfig: %q}
conntrack: {maxPerCore: 0} # the machine's limit is not for a test to change
`, o.PodCIDR, o.Name, kubeconfig), 0o644)
}
