//go:build linux

// Package kube starts a real Kubernetes control plane for tests: etcd and
// kube-apiserver, built from Go modules (package bundle, a module of its own), ready in
// a few seconds, in a network namespace if wanted. There are no nodes and no
// controllers: what is stored stays as it is, which is enough for everything that talks
// to an API server.
//
// A cluster is nothing but two processes and one folder. The processes die with the
// process that started them, at the latest.
package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/testenv/pki"
)

// ServerName is the name in the API server's certificate that in-cluster clients use.
const ServerName = "kubernetes.default.svc"

// Service range of the cluster and the address in it of the API server's own Service.
const (
	serviceRange   = "10.96.0.0/16"
	serviceAddress = "10.96.0.1"
)

// Options describe a cluster.
type Options struct {
	// Dir receives data, certificates, kubeconfig and logs. Required; it must exist.
	Dir string
	// Assets is the folder with etcd, kube-apiserver and kubectl; "" asks Binaries.
	Assets string
	// Namespace is the network namespace to run in, as `ip netns` names it; "" is the
	// caller's own. A namespace holds at most one cluster.
	Namespace string
	// Address is what the API server listens at and advertises. Default 127.0.0.1.
	Address netip.Addr
	// ServerNames are added to the names and addresses in its certificate.
	ServerNames []string
	// ClientCAs are PEM certificates of authorities whose client certificates are
	// believed, besides the cluster's own.
	ClientCAs []byte
}

// Cluster is a running control plane. Its methods are safe for concurrent use.
type Cluster struct {
	options    Options
	server     netip.AddrPort
	etcd       *netlab.Process
	api        *netlab.Process
	logs       []*os.File
	ca         *pki.CA
	admin      tls.Certificate
	kubeconfig string
}

// Start starts a cluster and waits until it is ready. ctx bounds the start alone; the
// caller ends the cluster with Close. When a component ends or isn't ready in time, the
// error shows the end of its log.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Assets == "" {
		dir, err := Binaries(ctx, os.Stderr)
		if err != nil {
			return nil, err
		}
		o.Assets = dir
	}
	if !o.Address.IsValid() {
		o.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("start a cluster: Dir %q is no folder", o.Dir)
	}
	c := &Cluster{options: o}
	if err := c.start(ctx); err != nil {
		return nil, fmt.Errorf("start a cluster: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	files, err := c.writeFiles()
	if err != nil {
		return err
	}
	ports, err := freePorts(ctx, c.options.Namespace, 3)
	if err != nil {
		return err
	}
	c.server = netip.AddrPortFrom(c.options.Address, ports[2])
	if err := c.writeKubeconfig(); err != nil {
		return err
	}
	client := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	c.etcd, err = c.run("etcd",
		"--data-dir", filepath.Join(c.options.Dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
	if err != nil {
		return err
	}
	c.api, err = c.run("kube-apiserver",
		"--etcd-servers="+client,
		"--bind-address="+c.options.Address.String(),
		"--advertise-address="+c.options.Address.String(),
		fmt.Sprintf("--secure-port=%d", c.server.Port()),
		"--service-cluster-ip-range="+serviceRange,
		"--service-account-issuer=https://"+ServerName,
		"--service-account-signing-key-file="+files.accountKey,
		"--service-account-key-file="+files.accountCert,
		"--tls-cert-file="+files.servingCert, "--tls-private-key-file="+files.servingKey,
		"--client-ca-file="+files.clientCAs,
		"--authorization-mode=RBAC",
		// Without a controller manager there is no default service account to mount.
		"--disable-admission-plugins=ServiceAccount")
	if err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// run starts a component with its log in Dir/log/NAME.log.
func (c *Cluster) run(name string, flags ...string) (*netlab.Process, error) {
	log, err := os.Create(c.logFile(name))
	if err != nil {
		return nil, fmt.Errorf("make the log of %s: %w", name, err)
	}
	c.logs = append(c.logs, log)
	return netlab.Start(netlab.Command{
		Namespace: c.options.Namespace,
		Args:      append([]string{filepath.Join(c.options.Assets, name)}, flags...),
		Dir:       c.options.Dir,
		Log:       log,
	})
}

func (c *Cluster) logFile(name string) string {
	return filepath.Join(c.options.Dir, "log", name+".log")
}

// readyPoll is the pause between two looks at /readyz, which offers no event.
const readyPoll = 100 * time.Millisecond

// waitReady waits until the API server answers /readyz with 200.
func (c *Cluster) waitReady(ctx context.Context) error {
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
		case <-c.etcd.Done():
			return c.withLog("etcd", errors.New("etcd ended"))
		case <-c.api.Done():
			return c.withLog("kube-apiserver", errors.New("kube-apiserver ended"))
		case <-ctx.Done():
			return c.withLog("kube-apiserver", fmt.Errorf("not ready in time (%w): %w", ctx.Err(), last))
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

// Close ends both processes and closes their logs. It may be called more than once.
func (c *Cluster) Close() error {
	// A cluster is thrown away: there is nothing for it to save.
	for _, p := range []*netlab.Process{c.api, c.etcd} {
		if p != nil {
			p.Kill()
		}
	}
	var errs []error
	for _, l := range c.logs {
		errs = append(errs, l.Close())
	}
	c.logs = nil
	return errors.Join(errs...)
}

// freePorts finds free TCP ports on the loopback of a namespace. They are free when it
// looks; the components take them moments later.
func freePorts(ctx context.Context, namespace string, n int) ([]uint16, error) {
	var ports []uint16
	err := netlab.Do(namespace, func() error {
		for range n {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
			if err != nil {
				return fmt.Errorf("find a free port: %w", err)
			}
			defer l.Close()
			ports = append(ports, l.Addr().(*net.TCPAddr).AddrPort().Port())
		}
		return nil
	})
	if err == nil && namespace != "" {
		ports[n-1] = 6443 // nobody else is there, and it is where people look
	}
	return ports, err
}
