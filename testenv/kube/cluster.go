//go:build linux

// Package kube starts real Kubernetes clusters for tests, built from Go modules (package
// bundle, a module of its own), without Docker, a registry or a download.
//
//   - [Start] starts a control plane alone, etcd and kube-apiserver, ready in a few
//     seconds. There are no nodes and no controllers: what is stored stays as it is, which
//     is enough for everything that talks to an API server.
//   - [StartNode] starts a whole cluster of one node, which runs pods: besides, the
//     controllers, the scheduler, a kubelet, kube-proxy and containerd.
//
// A cluster is nothing but processes, one folder and, with a node, cgroups. The
// processes die with the process that started them, at the latest, and what they
// mounted goes with them.
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

// Options describe a control plane.
type Options struct {
	// Dir receives data, certificates, kubeconfig and logs. Required; it must exist.
	Dir string
	// Assets is the folder with the programs; "" asks Binaries.
	Assets string
	// Namespace is the network namespace to run in, as `ip netns` names it; "" is the
	// caller's own. A namespace holds at most one cluster.
	Namespace string
	// Address is what the API server listens at and advertises. By default it is of the loopback
	// network, and nobody else's.
	Address netip.Addr
	// ServerNames are added to the names and addresses in its certificate.
	ServerNames []string
	// ClientCAs are PEM certificates of authorities whose client certificates are
	// believed, besides the cluster's own.
	ClientCAs []byte
}

// Cluster is a running cluster. Its methods are safe for concurrent use, but for Close,
// StopAPIServer and StartAPIServer.
type Cluster struct {
	options    Options
	services   netip.Prefix
	server     netip.AddrPort
	components []component // in the order they were started
	ca         *pki.CA
	admin      tls.Certificate
	kubeconfig string
	apiFlags   []string
	node       *node // nil for a control plane alone
}

// component is a running program with its log.
type component struct {
	name    string
	process *netlab.Process
	log     *os.File
}

// Start starts a control plane and waits until it is ready. ctx bounds the start alone;
// the caller ends the cluster with Close. When a component ends or isn't ready in time,
// the error shows the end of its log.
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

// newCluster makes a cluster of which nothing runs yet.
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
		// Its ports are chosen before it takes them, and again when it starts again: at 127.0.0.1
		// someone else may have them by then.
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

// run starts a component in the cluster's network namespace, with its log in
// Dir/log/NAME.log.
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

// errEnded is what an error of a component that runs no more wraps.
var errEnded = errors.New("ended")

// guard returns a context that ends when a component does, which is then its cause, with
// the end of the log. The caller must call stop.
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

// logTail bounds how much of a log an error shows, in bytes.
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

// URL of the API server.
func (c *Cluster) URL() string { return "https://" + c.server.String() }

// Server is the address and port of the API server.
func (c *Cluster) Server() netip.AddrPort { return c.server }

// CAFile holds the PEM certificate of the authority that signed the API server's.
func (c *Cluster) CAFile() string { return filepath.Join(c.options.Dir, "pki", "ca.crt") }

// Kubeconfig is the path of the administrator's kubeconfig; its server address works
// inside the cluster's namespace.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// AdminClient makes an HTTP client that speaks to the API server as the administrator,
// from inside the cluster's namespace.
func (c *Cluster) AdminClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs: c.ca.Pool(), ServerName: ServerName,
			Certificates: []tls.Certificate{c.admin}, MinVersion: tls.VersionTLS12,
		},
		ForceAttemptHTTP2: true, // a DialContext of one's own switches it off
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return netlab.DialContext(ctx, c.options.Namespace, network, address)
		},
	}}
}

// KubectlPath is kubectl of the API server's own version. Distributions may have one
// that is too old for exec credential plugins of version v1 (kubectl 1.22).
func (c *Cluster) KubectlPath() string { return filepath.Join(c.options.Assets, "kubectl") }

// Kubectl runs kubectl as the administrator, inside the cluster's namespace, with stdin,
// and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return netlab.Run(ctx, c.options.Namespace, stdin, append([]string{c.KubectlPath(), "--kubeconfig", c.kubeconfig}, args...)...)
}

// Close ends every process of the cluster, pods included, removes what they made outside
// Dir, and closes the logs. It may be called more than once.
func (c *Cluster) Close() error {
	// A cluster is thrown away: there is nothing for it to save.
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
