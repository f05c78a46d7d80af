//go:build linux

package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/netlab"
)

// containerdSocket is containerd's socket on the node.
const containerdSocket = "/run/containerd/containerd.sock"

// cniPlugins is the folder of Debian's containernetworking-plugins.
const cniPlugins = "/usr/lib/cni"

// containerdBooted is what containerd logs when it is ready.
const containerdBooted = "containerd successfully booted"

// startContainerd starts the container runtime and waits until it is ready.
func (c *Cluster) startContainerd(ctx context.Context, o NodeOptions) error {
	config, err := c.writeContainerdConfig(o)
	if err != nil {
		return err
	}
	p, err := c.start("containerd", netlab.Command{Args: c.node.inside("containerd", "--config", config)})
	if err != nil {
		return err
	}
	_, err = p.WaitStderr(ctx, func(s string) bool { return strings.Contains(s, containerdBooted) })
	return err
}

// writeContainerdConfig writes the configuration of the runtime and of the pod network: a bridge,
// hidden from everyone else behind the node's address.
func (c *Cluster) writeContainerdConfig(o NodeOptions) (string, error) {
	cni := filepath.Join(o.Dir, "cni")
	if err := os.MkdirAll(cni, 0o755); err != nil {
		return "", err
	}
	network := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`, o.PodCIDR)
	if err := os.WriteFile(filepath.Join(cni, "10-pods.conflist"), []byte(network), 0o644); err != nil {
		return "", err
	}
	path := filepath.Join(o.Dir, "containerd.toml")
	return path, os.WriteFile(path, fmt.Appendf(nil, `version = 2
root = %q
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # Machines without CAP_SYS_RESOURCE refuse a lower oom_score_adj, and runc fails.
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`, filepath.Join(o.Dir, "containerd"), containerdSocket, image.PauseName, cniPlugins, cni), 0o644)
}

// Load imports the images of an archive, as written by package image, into the node.
func (c *Cluster) Load(ctx context.Context, archive string) error {
	if c.node == nil {
		return fmt.Errorf("load %s: this cluster has no node", archive)
	}
	_, err := netlab.Run(ctx, "", "", c.node.inside("ctr", "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", archive)...)
	if err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	return nil
}
