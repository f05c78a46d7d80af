// Package config reads a gateway's configuration: the YAML file (kind: Gateway, the
// types of control/api), the POSTERN_* environment and the command's flags.
//
// # Rules
//
// Precedence is flag, environment, file, default; every value remembers its origin. Parsing is
// strict. An unknown field, a field given twice, a value of another type, an alias and a second
// document are errors. So is everything that could not work later: an invalid key, a name that two
// peers have, a file that cannot be read, a secret that everyone may read. A field whose feature
// this version lacks is an error if the gateway would not do what the file says, and a warning if
// it merely does less.
//
// Every problem is one line that names the file, the line, the field, what is wrong and what to do:
//
//	edge.yaml:14: spec.peers[0].publicKey: not a WireGuard key (want …)
//
// Relative paths in the file are relative to the file's directory, those of flags and environment
// to the working directory.
//
// [Load] returns either a configuration without any mistake that it could find, or all the
// mistakes; [Diff] compares two for a reload.
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
	// DefaultTokenTTL is short, since a token is all it takes to be the peer.
	DefaultTokenTTL = time.Hour
	// DefaultAccountNamespace holds the ServiceAccounts of peers.
	DefaultAccountNamespace = "postern-peers"
)

// privateKeyName is the key's file in the state directory, unless another is configured.
const privateKeyName = "private.key"

// maxFileSize bounds every file that is read, in bytes: a thousand peers take a tenth of it.
const maxFileSize = 1 << 20

// Resolved is a checked configuration with every default filled in. It is immutable after Load and
// may be shared.
type Resolved struct {
	// File is the path that was read.
	File string
	// Document is the effective document, as `config view` shows it.
	Document api.Gateway

	Name     string
	StateDir string
	// PrivateKeyFile is where the gateway's key is or, if it is the default one in StateDir, will
	// be created.
	PrivateKeyFile string
	// PrivateKey is the configured key; zero if PrivateKeyFile is the default one, which package
	// state reads or creates.
	PrivateKey peer.PrivateKey
	// ListenPort is the UDP port; 0 means any free one.
	ListenPort uint16
	// MTU of the overlay in bytes; 0 lets the gateway choose.
	MTU int
	// ConnectionRate is how many connections per second a peer may open; 0 lets package forward
	// choose.
	ConnectionRate int
	AdminSocket    string
	// HTTPAddress serves metrics and health checks; empty disables it.
	HTTPAddress string
	Discovery   Discovery
	// Proxy is the proxy of outbound TCP connections; the zero value means none.
	Proxy    egress.Proxy
	Services Services
	// Kubernetes is nil if the gateway does not run in a cluster.
	Kubernetes *Kubernetes
	// Peers are those of the file; none in a cluster, where peers are objects.
	Peers []Peer

	// Warnings are problems that do not keep the gateway from running.
	Warnings Problems

	origins map[string]Origin
	// text is the file's text, overrides what takes precedence over it.
	text      []byte
	overrides Overrides
}

// Text returns the file's text.
func (r *Resolved) Text() string { return string(r.text) }

// Fingerprint identifies the file's text.
func (r *Resolved) Fingerprint() string { return fingerprint(r.text) }

// Of returns the configuration for another text of the file, with errors like Load's.
func (r *Resolved) Of(text string) (*Resolved, error) {
	return load(r.File, []byte(text), r.overrides, osFiles{})
}

// Services are what this gateway offers.
type Services struct {
	// APIServer is nil if there is none.
	APIServer *APIServer
	// LocalCA, ServiceAccount and CSR are the issuer: at most one is not nil, and none if no
	// identities are issued.
	LocalCA        *LocalCA
	ServiceAccount *ServiceAccount
	CSR            *CSR
	// OutOfBand is where auth is served outside the tunnel; nil: nowhere.
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

// LocalCA names the files of the issuing CA. Load has read both and checked that they belong
// together.
type LocalCA struct {
	CertFile, KeyFile string
	TTL               time.Duration
}

// ServiceAccount says where the accounts are, in the gateway's own cluster, whose tokens peers get.
type ServiceAccount struct {
	Namespace string
	TTL       time.Duration
}

// CSR says how long the certificates of peers from the gateway's own cluster are valid.
type CSR struct {
	TTL time.Duration
}

// OutOfBand is auth outside the tunnel.
type OutOfBand struct {
	Listen string // host:port; the host may be empty
	// CertFile and KeyFile are the server's certificate; both empty if TLS is terminated elsewhere.
	CertFile, KeyFile string
}

// Kubernetes describes a gateway in a cluster, and its objects in the pod's namespace.
type Kubernetes struct {
	// Release is the prefix of all their names, Service the one that leads to the gateway.
	Release, Service string
	// PeerServices: each peer gets a Service and a Secret with a kubeconfig.
	PeerServices bool
	// PeerServicesFrom are namespaces besides the gateway's own whose pods may use them.
	PeerServicesFrom []string
	// MCS says where services are exported from and imported to; nil means nowhere.
	MCS *MCS
	// Lease is how long a standby waits for a silent active gateway.
	Lease time.Duration
}

// MCS configures exports and imports by the Multi-Cluster Services API.
type MCS struct {
	// Namespaces are sorted names without duplicates. Empty means all of the cluster's.
	Namespaces []string
	// DNS is where names of imported services are served; empty means nowhere.
	DNS string
}

// NamedService is any other offered service.
type NamedService struct {
	Name          string
	Ports         api.Ports // inside the tunnel
	Address       string    // host:port, of the first
	Export        mcs.Name  // its name for clusters; zero if it is not exported
	ProxyProtocol api.ProxyProtocol
}

// PortName is the exported name of a port, the first being 0.
func (n NamedService) PortName(nth int) string {
	if n.Ports.Len() == 1 {
		return n.Name
	}
	return fmt.Sprintf("%s-%d", n.Name, int(n.Ports.First)+nth)
}

// Peer is a peer of the file. Without a PublicKey it holds options for a peer of that name that
// joins by ticket.
type Peer struct {
	Name         string
	PublicKey    peer.PublicKey
	PresharedKey peer.PresharedKey
	// Joined: a Peer object of a peer that joined by ticket or was added by command. It has the
	// grants and listeners, and is used only while the state has a peer of that name and key.
	Joined    bool
	Endpoints []netip.AddrPort
	// EndpointNames are endpoints given as host:port, resolved while the gateway runs.
	EndpointNames []string
	// Allow are the local services that it may reach, sorted, without duplicates.
	Allow []string
	// Local are the local listeners, by the peer's service that they lead to.
	Local map[string]api.ListenAddress
	Stock bool
	// Labels are the operator's.
	Labels map[string]string
	// AllowedIPs of a stock peer, masked.
	AllowedIPs []netip.Prefix
	// Mode is api.ModeInBand or api.ModeOutOfBand.
	Mode string
	// Direct says how to reach its services outside the tunnel: to check them and, with
	// ModeOutOfBand, to use them.
	Direct check.DirectFacts
	// Export are the namespaces whose services the peer may have, Import those whose services are
	// imported from it: patterns, sorted, without duplicates.
	Export, Import mcs.Patterns
}

// Overrides are the values that take precedence over the file.
type Overrides struct {
	// Flags are the values of the flags that were given, by name without hyphens.
	Flags map[string]string
	// LookupEnv reads the environment, as os.LookupEnv does; nil reads none.
	LookupEnv func(string) (string, bool)
}

// Load reads the file, applies the overrides and checks everything. A mistake in the file is an
// error of type [Problems]; a file that cannot be read gives another error.
func Load(path string, o Overrides) (*Resolved, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return load(path, data, o, osFiles{})
}

// Read is Load for a configuration that is not in a file. Problems name it as path, and relative
// paths in it start at the directory of path.
func Read(r io.Reader, path string, o Overrides) (*Resolved, error) {
	data, err := readAll(r, path)
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
	return readAll(f, path)
}

func readAll(r io.Reader, path string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileSize)
	}
	return data, nil
}
