package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/testenv/apiserver"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// Site is one cluster: its API endpoint, its gateway and its admin socket.
type Site struct {
	Name string
	Host *simnet.Host
	API  *apiserver.Server
	// Gateway runs between Start and Stop. Callers that may run during a restart must use
	// Running.
	Gateway *gateway.Gateway
	// File is the gateway's configuration file, which Reload reads again.
	File string
	// Socket is the gateway's admin socket, for `postern --socket`.
	Socket string

	running  atomic.Pointer[gateway.Gateway]
	opts     Options
	names    *names
	pki      authorities
	document api.Gateway
	admin    *admin.Server
	// refuses simulates send errors of the machine.
	refuses atomic.Pointer[func(netip.AddrPort) error]
	// key is the gateway's key if it is given one; zero if it makes its own.
	key peer.PrivateKey
	// other is what the file says about the other site, in scenarios without tickets.
	other api.Peer
}

// authorities are a cluster's certificate authorities.
type authorities struct {
	serving *pki.CA // signs its API server's certificate
	peers   *pki.CA // signs the identities of peers
}

// newSite starts a site: authorities, API endpoint, configuration file, gateway. With a zero key
// the gateway makes its own.
func (l *Lab) newSite(ctx context.Context, host *simnet.Host, key peer.PrivateKey, namespaces ...string) (*Site, error) {
	s := &Site{Name: host.Name(), Host: host, opts: l.opts, names: &l.names, key: key}
	dir := filepath.Join(l.dir, s.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	issuer, err := s.startAPI(ctx, dir, namespaces)
	if err != nil {
		return nil, err
	}
	s.File, s.Socket = filepath.Join(dir, "gateway.yaml"), filepath.Join(dir, "admin.sock")
	s.document = s.describe(dir, issuer)
	err = l.offerServers(dir, &s.document)
	if err == nil && !key.IsZero() {
		s.document.Spec.PrivateKeyFile = filepath.Join(dir, "private.key")
		err = os.WriteFile(s.document.Spec.PrivateKeyFile, []byte(key.Base64()+"\n"), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	if err := s.write(); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// Spec returns a copy of the configuration file's spec.
func (s *Site) Spec() api.GatewaySpec {
	var doc api.Gateway
	text, err := yaml.Marshal(s.document)
	if err == nil {
		err = yaml.Unmarshal(text, &doc)
	}
	if err != nil { // it was valid YAML before
		return s.document.Spec
	}
	return doc.Spec
}

// Edit changes the configuration file; a running gateway needs a Reload.
func (s *Site) Edit(change func(*api.GatewaySpec)) error {
	change(&s.document.Spec)
	return s.write()
}

func (s *Site) write() error {
	text, err := yaml.Marshal(s.document)
	if err != nil {
		return fmt.Errorf("write the configuration of %s: %w", s.Name, err)
	}
	return os.WriteFile(s.File, text, 0o600)
}

// Start starts the gateway with its state directory.
func (s *Site) Start(ctx context.Context) error {
	read := func() (*config.Resolved, error) { return config.Load(s.File, config.Overrides{}) }
	cfg, err := read()
	if err != nil {
		return err
	}
	o := gateway.Options{
		Config: cfg, Version: s.opts.Version, ReadConfig: read,
		NewUnderlay: func(u underlay.Options) *underlay.Bind {
			return underlay.NewPacket(s.listen, u)
		},
		HostAddrs: func() ([]netip.Addr, error) { return s.Host.Addrs(), nil },
		Links: func() ([]discovery.Link, error) {
			return []discovery.Link{{Name: s.Name, Up: !s.Host.Link().Down()}}, nil
		},
		Resolve: s.names.resolve,
		Logger:  s.opts.Logger.With("gateway", s.Name),
	}
	if s.opts.Adjust != nil {
		s.opts.Adjust(s.Name, &o)
	}
	g, err := gateway.Start(ctx, o)
	if err != nil {
		return err
	}
	s.admin, err = admin.Listen(admin.ServerOptions{Socket: s.Socket, Backend: g, Logger: s.opts.Logger})
	if err != nil {
		return errors.Join(err, g.Close(ctx))
	}
	s.Gateway = g
	s.running.Store(g)
	return nil
}

// Running returns the gateway, or nil if it is stopped. It may be called at any time.
func (s *Site) Running() *gateway.Gateway { return s.running.Load() }

// Stop stops the gateway; connections still open when ctx ends are reset.
func (s *Site) Stop(ctx context.Context) error {
	var errs []error
	if s.admin != nil {
		errs = append(errs, s.admin.Close())
		s.admin = nil
	}
	s.running.Store(nil)
	if s.Gateway != nil {
		errs = append(errs, s.Gateway.Close(ctx))
		s.Gateway = nil
	}
	return errors.Join(errs...)
}

// restart stops the gateway without waiting for connections, and starts it.
func (s *Site) restart(ctx context.Context) error {
	if err := s.halt(); err != nil {
		return err
	}
	return s.Start(ctx)
}

// halt stops the gateway at once; open connections are reset.
func (s *Site) halt() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return s.Stop(now)
}

func (s *Site) close(ctx context.Context) error {
	err := s.Stop(ctx)
	if s.API != nil {
		err = errors.Join(err, s.API.Close())
	}
	return err
}

// issuerFiles are the files of the authority that issues identities to peers, and of the one that
// signed the API server's certificate.
type issuerFiles struct{ cert, key, clusterCA string }

// startAPI makes the cluster's two authorities, one for its API server's certificate and one for
// the identities of peers, and starts the API endpoint, which trusts the latter.
func (s *Site) startAPI(ctx context.Context, dir string, namespaces []string) (issuerFiles, error) {
	var err error
	if s.pki.serving, err = pki.NewCA(s.Name + "-cluster-ca"); err != nil {
		return issuerFiles{}, err
	}
	if s.pki.peers, err = pki.NewCA(s.Name + "-peers-ca"); err != nil {
		return issuerFiles{}, err
	}
	var f issuerFiles
	if f.cert, f.key, err = writeIssuer(s.pki.peers, dir); err != nil {
		return issuerFiles{}, err
	}
	f.clusterCA = filepath.Join(dir, "cluster-ca.crt")
	if err := os.WriteFile(f.clusterCA, s.pki.serving.CertPEM(), 0o644); err != nil {
		return issuerFiles{}, err
	}
	s.API, err = apiserver.Start(ctx, s.pki.serving, s.pki.peers.Pool(), namespaces...)
	return f, err
}

// writeIssuer writes an authority to the files that the issuer reads.
func writeIssuer(ca *pki.CA, dir string) (certFile, keyFile string, err error) {
	pair, err := ca.Pair()
	if err != nil {
		return "", "", err
	}
	return pair.Write(dir, "issuer")
}

// issueBy gives the issuer another authority, which the API server trusts; the gateway needs a
// Reload.
func (s *Site) issueBy(ca *pki.CA) error {
	s.pki.peers = ca
	_, _, err := writeIssuer(ca, filepath.Dir(s.File))
	s.API.Trust(ca.Pool())
	return err
}

// describe returns the gateway's configuration.
func (s *Site) describe(dir string, f issuerFiles) api.Gateway {
	doc := api.Gateway{APIVersion: api.Version, Kind: "Gateway", Metadata: api.Metadata{Name: s.Name}}
	doc.Spec.StateDir = filepath.Join(dir, "state")
	doc.Spec.Admin.Socket = s.Socket
	doc.Spec.Services.APIServer = &api.APIServerService{Address: s.API.Addr(), ServerName: apiserver.ServerName, CAFile: f.clusterCA}
	doc.Spec.Services.Auth = &api.AuthService{Issuer: &api.Issuer{
		LocalCA: &api.LocalCA{CertFile: f.cert, KeyFile: f.key, TTL: api.Duration(time.Hour)},
	}}
	return doc
}

// offerServers configures the STUN servers, the relay and the echo server of the scenario.
func (l *Lab) offerServers(dir string, doc *api.Gateway) error {
	servers := stunAddrs
	if l.tester != nil {
		servers = []netip.Addr{stunAddrs[0], testerAddrs[0]}
	}
	for _, a := range servers {
		doc.Spec.Discovery.STUNServers = append(doc.Spec.Discovery.STUNServers, netip.AddrPortFrom(a, stunPort).String())
	}
	user := doc.Metadata.Name
	if l.load.echo != nil && user == "cloud" {
		doc.Spec.Services.Named = []api.NamedService{{Name: echoService, Port: echoPort, Address: l.load.echo.listener.Addr().String()}}
	}
	if l.relay == nil {
		return nil
	}
	file := filepath.Join(dir, "relay-password")
	if err := os.WriteFile(file, []byte(relayPassword(user)), 0o600); err != nil {
		return err
	}
	doc.Spec.Discovery.TURNServers = []api.TURNServer{{Address: l.relay.AddrPort().String(), Username: user, PasswordFile: file}}
	return nil
}
