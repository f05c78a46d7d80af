//go:build linux

// Package kube starts real Kubernetes clusters for tests, built from Go modules (package bundle,
// a separate module), without Docker, a registry or a download.
//
//   - [Start] starts only a control plane, etcd and kube-apiserver, which is ready in a few
//     seconds. There are no nodes and no controllers: stored objects stay as they are, which
//     is enough for everything that talks to an API server.
//   - [StartNode] starts a whole cluster of one node that runs pods. It adds the controllers,
//     the scheduler, a kubelet, kube-proxy and containerd.
//
// A cluster consists only of processes, one folder and, with a node, cgroups. The processes end
// with the process that started them, at the latest, and their mounts with them.
package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/testenv/pki"
)

// ServerName is the name in the API server's certificate that in-cluster clients use.
const ServerName = "kubernetes.default.svc"

// Options configure a control plane.
type Options struct {
	// Dir receives data, certificates, kubeconfig and logs. Required; it must exist.
	Dir string
	// Assets is the folder with the programs; "" calls Binaries.
	Assets string
	// Namespace is the network namespace to run in, as `ip netns` names it; "" is the caller's. A
	// namespace can contain at most one cluster.
	Namespace string
	// Address is the address on which the API server listens and that it advertises. The default
	// is a loopback address that nobody else uses.
	Address netip.Addr
	// ServerNames are additional names and addresses for its certificate.
	ServerNames []string
	// ClientCAs are PEM certificates of authorities whose client certificates are accepted,
	// besides the cluster's own.
	ClientCAs []byte
}

// Cluster is a running cluster. Its methods are safe for concurrent use, except Close,
// StopAPIServer and StartAPIServer.
type Cluster struct {
	options    Options
	services   netip.Prefix
	server     netip.AddrPort
	components []component // in starting order
	ca         *pki.CA
	admin      tls.Certificate
	kubeconfig string
	apiFlags   []string
	node       *node // nil without a node
}

// component is a running program and its log.
type component struct {
	name    string
	process *netlab.Process
	log     *os.File
}

// Start starts a control plane and waits until it is ready. ctx only limits the start; the caller
// must Close the cluster. If a component ends or is not ready in time, the error contains the end
// of its log.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c, err := newCluster(ctx, o, components)
	if err != nil {
		return nil, err
	}
	if err := c.startAlone(ctx); err != nil {
		return nil, fmt.Errorf("start a cluster: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

// newCluster returns a cluster without running components.
func newCluster(ctx context.Context, o Options, programs []string) (*Cluster, error) {
	if o.Assets == "" {
		dir, err := Binaries(ctx, os.Stderr)
		if err != nil {
			return nil, err
		}
		o.Assets = dir
	}
	if err := holds(o.Assets, programs); err != nil {
		return nil, fmt.Errorf("start a cluster: folder %s %w", o.Assets, err)
	}
	if !o.Address.IsValid() {
		// Its ports are chosen before they are bound, and bound again at a restart. On 127.0.0.1
		// another program may have taken them by then.
		o.Address = netip.AddrFrom4([4]byte{127, byte(rand.N(255)), byte(rand.N(255)), byte(1 + rand.N(254))})
	}
	if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("start a cluster: Dir %q is no folder", o.Dir)
	}
	return &Cluster{options: o, services: netip.MustParsePrefix("10.96.0.0/16")}, nil
}

func (c *Cluster) startAlone(ctx context.Context) error {
	files, err := c.writeFiles()
	if err != nil {
		return err
	}
	err = c.startControlPlane(ctx, files,
		"--authorization-mode=RBAC",
		// Without a controller manager there is no default service account to mount.
		"--disable-admission-plugins=ServiceAccount")
	if err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// run starts a component in the cluster's network namespace. Its log is Dir/log/NAME.log.
func (c *Cluster) run(name string, flags ...string) error {
	args := append([]string{filepath.Join(c.options.Assets, name)}, flags...)
	_, err := c.start(name, netlab.Command{Namespace: c.options.Namespace, Args: args})
	return err
}

// start starts a program as a component.
func (c *Cluster) start(name string, command netlab.Command) (*netlab.Process, error) {
	log, err := os.Create(c.logFile(name))
	if err != nil {
		return nil, fmt.Errorf("make the log of %s: %w", name, err)
	}
	command.Dir, command.Log = c.options.Dir, log
	p, err := netlab.Start(command)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	c.components = append(c.components, component{name: name, process: p, log: log})
	return p, nil
}

func (c *Cluster) logFile(name string) string {
	return filepath.Join(c.options.Dir, "log", name+".log")
}

// errEnded is wrapped by the errors of components that have ended.
var errEnded = errors.New("ended")

// guard returns a context that ends when a component does. Its cause then contains the end of the
// log. The caller must call stop.
func (c *Cluster) guard(ctx context.Context) (guarded context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watchers sync.WaitGroup
	for _, p := range c.components {
		watchers.Go(func() {
			select {
			case <-p.process.Done():
				cancel(c.withLog(p.name, fmt.Errorf("%s %w", p.name, errEnded)))
			case <-ctx.Done():
			}
		})
	}
	return ctx, func() {
		cancel(nil)
		watchers.Wait()
	}
}

// logTail limits how much of a log an error contains, in bytes.
const logTail = 4 << 10

// withLog adds the end of a component's log to an error.
func (c *Cluster) withLog(name string, err error) error {
	b, readErr := os.ReadFile(c.logFile(name))
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if len(b) > logTail {
		b = b[len(b)-logTail:]
	}
	return fmt.Errorf("%w\n--- end of %s:\n%s", err, c.logFile(name), b)
}

// URL returns the URL of the API server.
func (c *Cluster) URL() string { return "https://" + c.server.String() }

// Server returns the address and port of the API server.
func (c *Cluster) Server() netip.AddrPort { return c.server }

// CAFile returns the path of the PEM certificate of the API server's authority.
func (c *Cluster) CAFile() string { return filepath.Join(c.options.Dir, "pki", "ca.crt") }

// Kubeconfig returns the path of the administrator's kubeconfig. Its server address works inside
// the cluster's namespace.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// AdminClient returns an HTTP client that talks to the API server as the administrator, from
// inside the cluster's namespace.
func (c *Cluster) AdminClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs: c.ca.Pool(), ServerName: ServerName,
			Certificates: []tls.Certificate{c.admin}, MinVersion: tls.VersionTLS12,
		},
		ForceAttemptHTTP2: true, // a custom DialContext disables it
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return netlab.DialContext(ctx, c.options.Namespace, network, address)
		},
	}}
}

// KubectlPath returns the path of kubectl in the API server's version. A distribution's kubectl
// may be too old for exec credential plugins of version v1 (kubectl 1.22).
func (c *Cluster) KubectlPath() string { return filepath.Join(c.options.Assets, "kubectl") }

// Kubectl runs kubectl as the administrator, inside the cluster's namespace, with stdin, and
// returns its output.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return netlab.Run(ctx, c.options.Namespace, stdin, append([]string{c.KubectlPath(), "--kubeconfig", c.kubeconfig}, args...)...)
}

// Close ends every process of the cluster, including pods, removes what they created outside Dir,
// and closes the logs. It may be called more than once.
func (c *Cluster) Close() error {
	// The cluster is discarded, so nothing needs to be saved.
	var errs []error
	if c.node != nil {
		if c.node.dns != nil {
			errs = append(errs, c.node.dns.close())
		}
		errs = append(errs, c.node.kill())
	}
	for i := len(c.components) - 1; i >= 0; i-- {
		c.components[i].process.Kill()
		errs = append(errs, c.components[i].log.Close())
	}
	c.components = nil
	if c.node != nil {
		errs = append(errs, c.node.removeCgroups())
		c.node = nil
	}
	return errors.Join(errs...)
}
