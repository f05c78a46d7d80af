// Package config reads a gateway's configuration: the YAML file (kind: Gateway, the
// types of control/api), the POSTERN_* environment and the command's flags.
//
// # Rules
//
// Precedence is flag, environment, file, default; every value remembers where it came
// from. Reading is strict. An unknown field, a field given twice, a value of another
// type, an alias and a second document are errors, and so is everything that could not
// work later: a key that is none, a name that two peers bear, a file that cannot be
// read, a secret that everyone may read. A field whose feature this version lacks is
// an error where the gateway would not do what the file says, and a warning where it
// merely does less.
//
// Every problem is one line that names the file, the line in it, the field, what is
// wrong and what to do:
//
//	edge.yaml:14: spec.peers[0].publicKey: not a WireGuard key (want …)
//
// Relative paths in the file start at the file's directory, those of flags and
// environment at the working directory.
//
// [Load] either returns a configuration that holds no mistake it could have found or
// all the mistakes; [Diff] compares two for a reload.
package config

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/discovery/egress"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Defaults of the specification.
const (
	DefaultStateDir   = "/var/lib/postern"
	DefaultListenPort = 51820
	DefaultSocket     = "/run/postern/postern.sock"
	// DefaultIdentityTTL of a certificate is also the longest allowed of any identity.
	DefaultIdentityTTL = 24 * time.Hour
	// DefaultTokenTTL is short, for a token is all it takes to be the peer.
	DefaultTokenTTL = time.Hour
	// DefaultAccountNamespace holds the ServiceAccounts of peers.
	DefaultAccountNamespace = "postern-peers"
)

// privateKeyName is the key's file in the state directory, unless one is configured.
const privateKeyName = "private.key"

// maxFileSize bounds every file that is read, in bytes: a thousand peers take a tenth.
const maxFileSize = 1 << 20

// Resolved is a checked configuration with every default filled in. It is not changed
// after Load and may be shared.
type Resolved struct {
	// File is the path that was read.
	File string
	// Document is the effective document, as `config view` shows it.
	Document api.Gateway

	Name     string
	StateDir string
	// PrivateKeyFile is where the gateway's key is or, when it is the default one in
	// StateDir, will be made.
	PrivateKeyFile string
	// PrivateKey is the configured key; zero when PrivateKeyFile is the default one,
	// which package state reads or makes.
	PrivateKey peer.PrivateKey
	// ListenPort is the UDP port; 0 takes a free one.
	ListenPort uint16
	// MTU of the overlay in bytes; 0 lets the gateway choose.
	MTU int
	// ConnectionRate is how many connections a second a peer may open; 0 lets package
	// forward choose.
	ConnectionRate int
	AdminSocket    string
	// HTTPAddress serves metrics and probes; empty switches it off.
	HTTPAddress string
	Discovery   Discovery
	// Proxy is what TCP connections to the outside take; its zero value is none.
	Proxy    egress.Proxy
	Services Services
	// Kubernetes is nil when the gateway does not live in a cluster.
	Kubernetes *Kubernetes
	// Peers are those of the file; none in a cluster, which has its own.
	Peers []Peer

	// Warnings are problems that do not keep the gateway from running.
	Warnings Problems

	origins map[string]Origin
	// text is what was read, overrides what stands above it.
	text      []byte
	overrides Overrides
}

// Text is what was read.
func (r *Resolved) Text() string { return string(r.text) }

// Fingerprint tells what was read from other texts.
func (r *Resolved) Fingerprint() string { return fingerprint(r.text) }

// Of is the configuration that another text of the file is, with errors as Load has them.
func (r *Resolved) Of(text string) (*Resolved, error) {
	return load(r.File, []byte(text), r.overrides, osFiles{})
}

// Services are what this gateway offers.
type Services struct {
	// APIServer is nil when there is none.
	APIServer *APIServer
	// LocalCA, ServiceAccount and CSR are the issuer: at most one is not nil, and none when
	// no identities are issued.
	LocalCA        *LocalCA
	ServiceAccount *ServiceAccount
	CSR            *CSR
	// OutOfBand is where auth answers outside the tunnel; nil: nowhere.
	OutOfBand *OutOfBand
	Named     []NamedService
}

// APIServer is where the gateway reaches its cluster's API server.
type APIServer struct {
	Address    string // host:port
	ServerName string
	// CAData is the PEM of the certificates that signed its own; nil when not given.
	CAData []byte
}

// LocalCA names the files of the issuing CA. Load has read both and found that they
// belong together.
type LocalCA struct {
	CertFile, KeyFile string
	TTL               time.Duration
}

// ServiceAccount says where the accounts are whose tokens peers get, in the gateway's own
// cluster.
type ServiceAccount struct {
	Namespace string
	TTL       time.Duration
}

// CSR says for how long the gateway's own cluster is asked to certify peers.
type CSR struct {
	TTL time.Duration
}

// OutOfBand is auth outside the tunnel.
type OutOfBand struct {
	Listen string // host:port; the host may be empty
	// CertFile and KeyFile are the server's certificate; both empty when TLS ends before.
	CertFile, KeyFile string
}

// Kubernetes is what a gateway in a cluster keeps there, in its pod's namespace.
type Kubernetes struct {
	// Release begins the names of all of it, Service is the one that leads to the gateway.
	Release, Service string
	// PeerServices: each peer gets a Service and a Secret with a kubeconfig.
	PeerServices bool
	// PeerServicesFrom are namespaces besides the gateway's own whose pods may use them.
	PeerServicesFrom []string
	// MCS is where services are exported from and imported to; nil is nowhere.
	MCS *MCS
	// Lease is how long a standby waits for a silent active gateway.
	Lease time.Duration
}

// MCS is where a gateway exports and imports services by the Multi-Cluster Services API.
type MCS struct {
	// Namespaces are by name, sorted, each once. Without any it is all of the cluster's.
	Namespaces []string
	// DNS is where names of imported services are served; empty is nowhere.
	DNS string
}

// NamedService is any other service that is offered.
type NamedService struct {
	Name          string
	Ports         api.Ports // inside the tunnel
	Address       string    // host:port, of the first
	Export        mcs.Name  // what clusters have it as; zero if they have not
	ProxyProtocol api.ProxyProtocol
}

// PortName is what clusters call a port of it, the first being 0.
func (n NamedService) PortName(nth int) string {
	if n.Ports.Len() == 1 {
		return n.Name
	}
	return fmt.Sprintf("%s-%d", n.Name, int(n.Ports.First)+nth)
}

// Peer is a peer of the file. Without a PublicKey it holds options for the peer of
// that name that joins by ticket.
type Peer struct {
	Name         string
	PublicKey    peer.PublicKey
	PresharedKey peer.PresharedKey
	// Joined: a Peer object of a peer that joined by ticket or was added by command. It has
	// what is allowed and where to listen, and counts only while the state has a peer of
	// that name and key.
	Joined    bool
	Endpoints []netip.AddrPort
	// EndpointNames are endpoints given as host:port, resolved while the gateway runs.
	EndpointNames []string
	// Allow are the services that it may reach here, sorted, each once.
	Allow []string
	// Local are the listeners here, by the service of the peer that they lead to.
	Local map[string]api.ListenAddress
	Stock bool
	// Labels are the operator's own.
	Labels map[string]string
	// AllowedIPs of a stock peer, masked.
	AllowedIPs []netip.Prefix
	// Mode is api.ModeInBand or api.ModeOutOfBand.
	Mode string
	// Direct is how its services are reached outside the tunnel: to check them there, and,
	// with ModeOutOfBand, to use them.
	Direct check.DirectFacts
	// Export are the namespaces whose services the peer may have, Import those whose services are
	// taken from it: patterns, sorted, each once.
	Export, Import mcs.Patterns
}

// Tunnel is the peer in the tunnel's terms. It is meaningless without a PublicKey.
func (p Peer) Tunnel() peer.Config {
	return peer.Config{
		Name: p.Name, PublicKey: p.PublicKey, PresharedKey: p.PresharedKey,
		Endpoints: p.Endpoints, Stock: p.Stock, AllowedIPs: p.AllowedIPs,
	}
}

// Overrides are what stands above the file.
type Overrides struct {
	// Flags are the values of the flags that were given, by name without hyphens.
	Flags map[string]string
	// LookupEnv reads the environment, as os.LookupEnv does; nil reads none.
	LookupEnv func(string) (string, bool)
}

// Load reads the file, applies the overrides and checks everything. A file that is
// wrong returns an error of type [Problems]; one that cannot be read another.
func Load(path string, o Overrides) (*Resolved, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return load(path, data, o, osFiles{})
}

func load(path string, data []byte, o Overrides, files fileReader) (*Resolved, error) {
	doc, origins, problems := decode(path, data)
	if len(problems) > 0 {
		return nil, problems.sorted()
	}
	problems = applyOverrides(doc, origins, o)
	c := &checker{
		file: path, dir: filepath.Dir(path), doc: doc, origins: origins, files: files, problems: problems, lookupEnv: o.LookupEnv,
	}
	r := c.resolve()
	if len(c.problems) > 0 {
		return nil, c.problems.sorted()
	}
	r.Warnings = c.warnings.sorted()
	r.text, r.overrides = data, o
	return r, nil
}

// readBounded reads a regular file or a pipe of at most maxFileSize bytes.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileSize)
	}
	return data, nil
}
