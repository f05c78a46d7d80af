//go:build linux

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/postern-dev/postern/testenv/kube/image"
)

// NodeOptions configure a cluster of one node.
type NodeOptions struct {
	// Dir receives data, certificates, kubeconfigs, images and logs. Required; it must exist.
	Dir string
	// Assets is the folder with the programs; "" calls Binaries.
	Assets string
	// Namespace is the node's network namespace, as `ip netns` names it. Required, and only for
	// this cluster: kube-proxy and the pod network change it.
	Namespace string
	// Name is the node's name, a DNS label. It is also part of cgroup names.
	Name string
	// NodeAddress is the node's address, which Namespace already has, and the API server's.
	NodeAddress netip.Addr
	// PodCIDR and ServiceCIDR are the ranges of pods and Services, both IPv4. The defaults are
	// 10.244.0.0/24 and 10.96.0.0/16. Clusters that never route to each other's pods can share
	// them.
	PodCIDR, ServiceCIDR netip.Prefix
	// Hosts are names outside the cluster for its DNS, with an IPv4 address each.
	Hosts map[string]netip.Addr
	// CoreDNS is the path of CoreDNS, from the function CoreDNS, to use as the cluster's DNS. It
	// also serves the names of other clusters' services (clusterset.local), but not Hosts. "" is
	// the test's own server, which only serves Services with an address.
	CoreDNS string
	// ServerNames are additional names and addresses for the API server's certificate.
	ServerNames []string
	// ClientCAs are PEM certificates of authorities whose client certificates are accepted,
	// besides the cluster's own.
	ClientCAs []byte
}

// StartNode starts a cluster of one node, on which every namespace can run pods. It returns when
// the API server is ready; WaitReady waits for the rest, so that several clusters can start at a
// time. Images come from archives (Load); pods must set `imagePullPolicy: Never`. ctx only limits
// the start; the caller must Close the cluster. If a component ends or is not ready in time, the
// error contains the end of its log.
func StartNode(ctx context.Context, o NodeOptions) (*Cluster, error) {
	if !o.PodCIDR.IsValid() {
		o.PodCIDR = netip.MustParsePrefix("10.244.0.0/24")
	}
	if !o.ServiceCIDR.IsValid() {
		o.ServiceCIDR = netip.MustParsePrefix("10.96.0.0/16")
	}
	if o.Namespace == "" || o.Name == "" || !o.NodeAddress.IsValid() {
		return nil, errors.New("start a node: Namespace, Name and NodeAddress are required")
	}
	c, err := newCluster(ctx, Options{
		Dir: o.Dir, Assets: o.Assets, Namespace: o.Namespace, Address: o.NodeAddress,
		ServerNames: o.ServerNames, ClientCAs: o.ClientCAs,
	}, allComponents())
	if err != nil {
		return nil, err
	}
	c.services = o.ServiceCIDR
	if err := c.startNode(ctx, o); err != nil {
		return nil, fmt.Errorf("start node %s: %w", o.Name, errors.Join(err, c.Close()))
	}
	return c, nil
}

// startNode starts all components, each as soon as its dependencies are ready.
func (c *Cluster) startNode(ctx context.Context, o NodeOptions) error {
	cgroups, err := makeCgroups(o.Namespace)
	if err != nil {
		return err
	}
	c.node = &node{name: o.Name, cgroups: cgroups}
	files, err := c.writeFiles()
	if err != nil {
		return err
	}
	identity, err := c.writeIdentities(o)
	if err != nil {
		return err
	}
	if err := c.startControlPlane(ctx, files,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority="+c.CAFile(),
		"--kubelet-client-certificate="+identity.apiClientCert, "--kubelet-client-key="+identity.apiClientKey,
	); err != nil {
		return err
	}
	// The container runtime and its first image take about as long as the API server.
	pause := filepath.Join(o.Dir, "pause.tar")
	program, err := image.Pause(ctx, pause)
	if err != nil {
		return err
	}
	if err := c.isolate(ctx, program); err != nil {
		return err
	}
	if err := c.startContainerd(ctx, o); err != nil {
		return err
	}
	if err := c.Load(ctx, pause); err != nil {
		return err
	}
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	if o.CoreDNS != "" {
		err = c.startCoreDNS(o.CoreDNS)
	} else {
		err = c.startDNS(o.Hosts)
	}
	if err != nil {
		return err
	}
	return c.startAgents(files, identity, o)
}

// startAgents starts the clients of the API server: controllers, scheduler, kubelet and
// kube-proxy.
func (c *Cluster) startAgents(f files, id identities, o NodeOptions) error {
	configs := map[string]string{}
	for _, name := range agents {
		path, err := c.writeKubeconfig(name)
		if err != nil {
			return err
		}
		configs[name] = path
	}
	if err := c.run("kube-controller-manager",
		"--kubeconfig="+configs["kube-controller-manager"],
		"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file="+f.accountKey,
		"--root-ca-file="+c.CAFile(),
		"--cluster-signing-cert-file="+c.CAFile(), "--cluster-signing-key-file="+id.authorityKey,
		"--allocate-node-cidrs", "--cluster-cidr="+o.PodCIDR.String(),
		// The only node has the whole range, as in the CNI configuration.
		fmt.Sprintf("--node-cidr-mask-size=%d", o.PodCIDR.Bits()),
	); err != nil {
		return err
	}
	if err := c.run("kube-scheduler",
		"--kubeconfig="+configs["kube-scheduler"], "--bind-address=127.0.0.1", "--leader-elect=false",
	); err != nil {
		return err
	}
	kubelet, err := c.writeKubeletConfig(o, id)
	if err != nil {
		return err
	}
	if err := c.runInside("kubelet", "--config="+kubelet, "--kubeconfig="+configs["kubelet"],
		"--hostname-override="+o.Name, "--node-ip="+o.NodeAddress.String()); err != nil {
		return err
	}
	proxy, err := c.writeProxyConfig(o, configs["kube-proxy"])
	if err != nil {
		return err
	}
	return c.runInside("kube-proxy", "--config="+proxy)
}

// WaitReady waits until the node is Ready and pods can be created in the namespace
// "default".
func (c *Cluster) WaitReady(ctx context.Context) error {
	if c.node == nil {
		return errors.New("wait for the node: this cluster has none")
	}
	if err := c.WaitFor(ctx, "/api/v1/nodes?fieldSelector=metadata.name%3D"+c.node.name, schedulable); err != nil {
		return c.explain("kubelet", err)
	}
	return c.WaitNamespace(ctx, "default")
}

// schedulable accepts a node that is Ready, and that the controllers have noticed as such.
func schedulable(object []byte) bool {
	var node struct {
		Spec struct {
			Taints []json.RawMessage `json:"taints"`
		} `json:"spec"`
	}
	return HasCondition("Ready")(object) && json.Unmarshal(object, &node) == nil && len(node.Spec.Taints) == 0
}

// WaitNamespace waits until pods can be created in a namespace: until the controllers have
// created its default service account and the CA bundle for its tokens.
func (c *Cluster) WaitNamespace(ctx context.Context, namespace string) error {
	for _, path := range []string{"serviceaccounts?fieldSelector=metadata.name%3Ddefault", "configmaps?fieldSelector=metadata.name%3Dkube-root-ca.crt"} {
		if err := c.WaitFor(ctx, "/api/v1/namespaces/"+namespace+"/"+path, Exists); err != nil {
			return c.explain("kube-controller-manager", err)
		}
	}
	return nil
}

// explain adds the end of the log of the component that was waited for, unless the error already
// names one that ended.
func (c *Cluster) explain(name string, err error) error {
	if errors.Is(err, errEnded) {
		return err
	}
	return c.withLog(name, err)
}
