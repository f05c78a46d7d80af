//go:build linux

package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/postern-dev/postern/testenv/netlab"
)

// startControlPlane starts etcd and kube-apiserver, without waiting for them.
func (c *Cluster) startControlPlane(ctx context.Context, f files, flags ...string) error {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if c.options.Address.IsLoopback() {
		loopback = c.options.Address
	}
	ports, err := freePorts(ctx, c.options.Namespace, loopback, 3)
	if err != nil {
		return err
	}
	c.server = netip.AddrPortFrom(c.options.Address, ports[2])
	if c.kubeconfig, err = c.writeKubeconfig("admin"); err != nil {
		return err
	}
	client := fmt.Sprintf("http://%s:%d", loopback, ports[0])
	peer := fmt.Sprintf("http://%s:%d", loopback, ports[1])
	err = c.run("etcd",
		"--data-dir", filepath.Join(c.options.Dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
	if err != nil {
		return err
	}
	c.apiFlags = append([]string{
		"--etcd-servers=" + client,
		"--bind-address=" + c.options.Address.String(),
		"--advertise-address=" + c.options.Address.String(),
		fmt.Sprintf("--secure-port=%d", c.server.Port()),
		"--service-cluster-ip-range=" + c.services.String(),
		"--service-account-issuer=https://" + ServerName,
		"--service-account-signing-key-file=" + f.accountKey,
		"--service-account-key-file=" + f.accountCert,
		"--tls-cert-file=" + f.servingCert, "--tls-private-key-file=" + f.servingKey,
		"--client-ca-file=" + f.clientCAs,
	}, flags...)
	if c.options.Address.IsLoopback() { // which 1.37 does not take for an address of Service kubernetes
		c.apiFlags = append(c.apiFlags, "--endpoint-reconciler-type=none")
	}
	return c.run(apiServer, c.apiFlags...)
}

// apiServer is the component that tests can stop and start.
const apiServer = "kube-apiserver"

// StopAPIServer kills the API server; everything else continues. The next StartAPIServer
// overwrites its log.
func (c *Cluster) StopAPIServer() error {
	for i, p := range c.components {
		if p.name == apiServer {
			p.process.Kill()
			c.components = slices.Delete(c.components, i, i+1)
			return p.log.Close()
		}
	}
	return errors.New("stop the API server: it doesn't run")
}

// StartAPIServer starts the API server again, with the same data, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if slices.ContainsFunc(c.components, func(p component) bool { return p.name == apiServer }) {
		return errors.New("start the API server: it runs already")
	}
	if err := c.run(apiServer, c.apiFlags...); err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// readyPoll is the interval of requests to /readyz, which has no events.
const readyPoll = 100 * time.Millisecond

// waitReady waits until the API server answers /readyz with 200.
func (c *Cluster) waitReady(ctx context.Context) error {
	ctx, stop := c.guard(ctx)
	defer stop()
	client := c.AdminClient()
	defer client.CloseIdleConnections()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	var last error
	for {
		if last = probe(ctx, client, c.URL()+"/readyz"); last == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if errors.Is(cause, errEnded) {
				return cause
			}
			return c.withLog(apiServer, fmt.Errorf("not ready in time (%w): %w", cause, last))
		}
	}
}

func probe(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// freePorts returns free TCP ports at an address of a namespace. The components bind them a
// moment later.
func freePorts(ctx context.Context, namespace string, at netip.Addr, n int) ([]uint16, error) {
	var ports []uint16
	err := netlab.Do(namespace, func() error {
		for range n {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(at, 0).String())
			if err != nil {
				return fmt.Errorf("find a free port: %w", err)
			}
			defer l.Close()
			ports = append(ports, l.Addr().(*net.TCPAddr).AddrPort().Port())
		}
		return nil
	})
	if err == nil && namespace != "" {
		ports[n-1] = 6443 // nobody else is there, and people expect it
	}
	return ports, err
}
