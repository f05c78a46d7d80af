package api

// Gateway is the configuration file (kind: Gateway).
type Gateway struct {
	APIVersion string      `json:"apiVersion" yaml:"apiVersion"`
	Kind       string      `json:"kind" yaml:"kind"`
	Metadata   Metadata    `json:"metadata" yaml:"metadata"`
	Spec       GatewaySpec `json:"spec" yaml:"spec"`
}

// Metadata names a document's object.
type Metadata struct {
	Name string `json:"name" yaml:"name"`
}

// GatewaySpec is the configuration of a gateway.
type GatewaySpec struct {
	// StateDir holds the key, the peers that joined and the open tickets.
	StateDir string `json:"stateDir,omitempty" yaml:"stateDir,omitempty"`
	// PrivateKeyFile defaults to stateDir/private.key, which is created if missing.
	PrivateKeyFile string `json:"privateKeyFile,omitempty" yaml:"privateKeyFile,omitempty"`
	Listen         Listen `json:"listen,omitempty" yaml:"listen,omitempty"`
	// MTU of the overlay in bytes; 0 lets the gateway choose (1420 at most).
	MTU       int       `json:"mtu,omitempty" yaml:"mtu,omitempty"`
	Admin     Admin     `json:"admin,omitempty" yaml:"admin,omitempty"`
	HTTP      HTTP      `json:"http,omitempty" yaml:"http,omitempty"`
	Discovery Discovery `json:"discovery,omitempty" yaml:"discovery,omitempty"`
	// Proxy is used for TCP connections to the outside, if a network has no other way out.
	Proxy    *Proxy   `json:"proxy,omitempty" yaml:"proxy,omitempty"`
	Services Services `json:"services,omitempty" yaml:"services,omitempty"`
	Limits   Limits   `json:"limits,omitempty" yaml:"limits,omitempty"`
	// Kubernetes runs the gateway in its cluster: peers come from Peer objects, and its state is
	// kept in Secrets. Peers below are then ignored.
	Kubernetes *Kubernetes `json:"kubernetes,omitempty" yaml:"kubernetes,omitempty"`
	Peers      []Peer      `json:"peers,omitempty" yaml:"peers,omitempty"`
}

// Kubernetes configures a gateway in a cluster. Its objects are in its pod's namespace. The Helm
// chart writes it.
type Kubernetes struct {
	// Release is the prefix of the names of the gateway's objects; postern by default.
	Release string `json:"release,omitempty" yaml:"release,omitempty"`
	// Service is the Service that leads to the gateway; the release's name by default.
	Service string `json:"service,omitempty" yaml:"service,omitempty"`
	// PeerServices gives each peer a Service and a Secret with a kubeconfig; true by default.
	PeerServices *bool `json:"peerServices,omitempty" yaml:"peerServices,omitempty"`
	// PeerServicesFrom lists namespaces besides the gateway's own whose pods may use them. The
	// gateway needs the right to list the pods of each.
	PeerServicesFrom []string `json:"peerServicesFrom,omitempty" yaml:"peerServicesFrom,omitempty"`
	// MCS exports and imports services of clusters by the Multi-Cluster Services API.
	MCS *MCS `json:"mcs,omitempty" yaml:"mcs,omitempty"`
	// LeaseSeconds is how long a standby waits for a silent active gateway, in seconds; 8 by default.
	LeaseSeconds int `json:"leaseSeconds,omitempty" yaml:"leaseSeconds,omitempty"`
}

// MCS lists the namespaces in which the gateway sees ServiceExports and creates ServiceImports, or
// selects all of them. It needs the rights that the chart gives it in each.
type MCS struct {
	Namespaces    []string `json:"namespaces,omitempty" yaml:"namespaces,omitempty"`
	AllNamespaces bool     `json:"allNamespaces,omitempty" yaml:"allNamespaces,omitempty"`
	// DNS serves the names of imported services, for a cluster whose own DNS can only forward.
	DNS *ClustersetDNS `json:"dns,omitempty" yaml:"dns,omitempty"`
}

// ClustersetDNS is a DNS server for clusterset.local, in every replica.
type ClustersetDNS struct {
	// Listen is host:port or :port, for UDP and TCP.
	Listen string `json:"listen" yaml:"listen"`
}

// Limits bound what one peer can ask of this gateway.
type Limits struct {
	// ConnectionsPerSecond is how many connections a second one peer may open to services here in
	// the long run; 50 by default. A burst may be as large as the number that may be open.
	ConnectionsPerSecond int `json:"connectionsPerSecond,omitempty" yaml:"connectionsPerSecond,omitempty"`
}

// Listen is the underlay socket. Port 0 chooses a free one.
type Listen struct {
	Port *uint16 `json:"port,omitempty" yaml:"port,omitempty"`
}

// Admin is the local control socket.
type Admin struct {
	Socket string `json:"socket,omitempty" yaml:"socket,omitempty"`
}

// HTTP serves /metrics, /livez and /readyz; an empty address disables it.
type HTTP struct {
	Address string `json:"address,omitempty" yaml:"address,omitempty"`
}

// Discovery configures how peers find this gateway, and how it finds its own addresses.
type Discovery struct {
	// Advertise lists addresses that are announced unchanged, before all others.
	Advertise   []string     `json:"advertise,omitempty" yaml:"advertise,omitempty"`
	STUNServers []string     `json:"stunServers,omitempty" yaml:"stunServers,omitempty"`
	TURNServers []TURNServer `json:"turnServers,omitempty" yaml:"turnServers,omitempty"`
	PortMapping PortMapping  `json:"portMapping,omitempty" yaml:"portMapping,omitempty"`
	LAN         LAN          `json:"lan,omitempty" yaml:"lan,omitempty"`
	DNS         DNS          `json:"dns,omitempty" yaml:"dns,omitempty"`
	// Exclude lists address ranges (CIDR) in which nothing is announced or dialled: those of pods
	// and Services, which mean something else in every cluster.
	Exclude []string `json:"exclude,omitempty" yaml:"exclude,omitempty"`
	// Keepalive is how often an idle path is probed, 1s to 60s; 20s by default.
	Keepalive Duration `json:"keepalive,omitempty" yaml:"keepalive,omitempty"`
}

// TURNServer is a relay (RFC 8656) and this gateway's account there.
type TURNServer struct {
	Address      string `json:"address" yaml:"address"`
	Username     string `json:"username,omitempty" yaml:"username,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty" yaml:"passwordFile,omitempty"`
	// Transport is auto (UDP, and TCP or TLS where UDP does not pass), udp, tcp or tls.
	Transport string `json:"transport,omitempty" yaml:"transport,omitempty"`
	// ServerName is the name in the server's certificate; the address's host by default.
	ServerName string `json:"serverName,omitempty" yaml:"serverName,omitempty"`
	// CAFile holds the PEM certificates that signed it; the system's by default.
	CAFile string `json:"caFile,omitempty" yaml:"caFile,omitempty"`
}

// PortMapping asks the router for an inbound port. Mode is auto or off.
type PortMapping struct {
	Mode   string `json:"mode,omitempty" yaml:"mode,omitempty"`
	Router string `json:"router,omitempty" yaml:"router,omitempty"`
}

// LAN is discovery by multicast DNS.
type LAN struct {
	Enabled bool `json:"enabled,omitempty" yaml:"enabled,omitempty"`
	// Interfaces to use; all suitable ones by default.
	Interfaces []string `json:"interfaces,omitempty" yaml:"interfaces,omitempty"`
	// TTL is how long others remember this gateway without hearing from it, 5s to 75m; 2m by
	// default.
	TTL Duration `json:"ttl,omitempty" yaml:"ttl,omitempty"`
	// AutoPeer lists the gateways that become peers as soon as they are discovered, by public key:
	// KEY, or NAME=KEY with its name here. Without a NAME the peer is named after the key's
	// fingerprint, because an announced name is not proven.
	AutoPeer []string `json:"autoPeer,omitempty" yaml:"autoPeer,omitempty"`
	// SecretFile holds the secret of a group of gateways that become each other's peers as soon as
	// they are discovered: 32 random bytes, base64.
	SecretFile string `json:"secretFile,omitempty" yaml:"secretFile,omitempty"`
	// Allow lists the services that automatic peers may reach here.
	Allow []string `json:"allow,omitempty" yaml:"allow,omitempty"`
}

// DNS is discovery by service records.
type DNS struct {
	// Domains are browsed for gateways: _postern._udp.DOMAIN.
	Domains []string `json:"domains,omitempty" yaml:"domains,omitempty"`
	// Servers (address or address:port) are used instead of the system's.
	Servers []string `json:"servers,omitempty" yaml:"servers,omitempty"`
}

// Proxy is an HTTP proxy for TURN over TCP and TLS and for peers' services outside the tunnel.
// Settings that are missing come from HTTPS_PROXY and NO_PROXY.
type Proxy struct {
	// URL is http://HOST:PORT or https://HOST:PORT, or none to ignore HTTPS_PROXY.
	URL string `json:"url,omitempty" yaml:"url,omitempty"`
	// Username is sent to the proxy with the password, as Basic credentials.
	Username     string `json:"username,omitempty" yaml:"username,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty" yaml:"passwordFile,omitempty"`
	// NoProxy lists hosts, domains, addresses and ranges that are dialled without it.
	NoProxy []string `json:"noProxy,omitempty" yaml:"noProxy,omitempty"`
}

// Services are what this gateway offers inside the tunnel.
type Services struct {
	APIServer *APIServerService `json:"apiServer,omitempty" yaml:"apiServer,omitempty"`
	Auth      *AuthService      `json:"auth,omitempty" yaml:"auth,omitempty"`
	Named     []NamedService    `json:"named,omitempty" yaml:"named,omitempty"`
}

// APIServerService is this cluster's API server.
type APIServerService struct {
	// Address (host:port) is where the gateway reaches it.
	Address string `json:"address" yaml:"address"`
	// ServerName is the name in its certificate; peers get it.
	ServerName string `json:"serverName,omitempty" yaml:"serverName,omitempty"`
	// CAFile holds the PEM certificates that signed it; peers get them.
	CAFile string `json:"caFile,omitempty" yaml:"caFile,omitempty"`
}

// AuthService issues identities for the API server to peers.
type AuthService struct {
	Issuer    *Issuer    `json:"issuer,omitempty" yaml:"issuer,omitempty"`
	OutOfBand *OutOfBand `json:"outOfBand,omitempty" yaml:"outOfBand,omitempty"`
}

// Issuer names exactly one way to issue identities.
type Issuer struct {
	LocalCA        *LocalCA              `json:"localCA,omitempty" yaml:"localCA,omitempty"`
	ServiceAccount *ServiceAccountIssuer `json:"serviceAccount,omitempty" yaml:"serviceAccount,omitempty"`
	CSR            *CSRIssuer            `json:"csr,omitempty" yaml:"csr,omitempty"`
}

// CSRIssuer issues client certificates signed by the cluster (CertificateSigningRequest).
type CSRIssuer struct {
	// TTL of a certificate, 10m to 24h; 1h by default.
	TTL Duration `json:"ttl,omitempty" yaml:"ttl,omitempty"`
}

// ServiceAccountIssuer issues tokens of one ServiceAccount per peer (TokenRequest).
type ServiceAccountIssuer struct {
	// Namespace holds the accounts, and nothing else; postern-peers by default.
	Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	// TTL of a token, 10m to 24h; 1h by default.
	TTL Duration `json:"ttl,omitempty" yaml:"ttl,omitempty"`
}

// LocalCA signs client certificates with a CA used only for this.
type LocalCA struct {
	CertFile string `json:"certFile" yaml:"certFile"`
	KeyFile  string `json:"keyFile" yaml:"keyFile"`
	// TTL of a certificate, at most 24h (the default).
	TTL Duration `json:"ttl,omitempty" yaml:"ttl,omitempty"`
}

// OutOfBand exposes the auth service outside the tunnel.
type OutOfBand struct {
	Listen string   `json:"listen" yaml:"listen"`
	TLS    *TLSFile `json:"tls,omitempty" yaml:"tls,omitempty"`
}

// TLSFile is a certificate chain and its key, both PEM.
type TLSFile struct {
	CertFile string `json:"certFile" yaml:"certFile"`
	KeyFile  string `json:"keyFile" yaml:"keyFile"`
}

// NamedService is any other service behind this gateway.
type NamedService struct {
	Name string `json:"name" yaml:"name"`
	// Protocol is TCP, the default, or UDP.
	Protocol Protocol `json:"protocol,omitempty" yaml:"protocol,omitempty"`
	// Port is the overlay port.
	Port uint16 `json:"port,omitempty" yaml:"port,omitempty"`
	// Ports replaces Port for a service with several consecutive ports: FIRST-LAST, at most 1024.
	Ports string `json:"ports,omitempty" yaml:"ports,omitempty"`
	// Address (host:port) is where the gateway reaches it. If there are several ports it is the
	// first one, and the others follow in order.
	Address string `json:"address" yaml:"address"`
	// Export is the service's NAMESPACE/NAME in clusters, on a machine without a cluster. It goes
	// to peers whose services.export matches the namespace. Several services may share it, as ports
	// of one service.
	Export string `json:"export,omitempty" yaml:"export,omitempty"`
	// ProxyProtocol sends a header that says who connects: v2 is version 2 of the PROXY protocol.
	// It is only for TCP.
	ProxyProtocol ProxyProtocol `json:"proxyProtocol,omitempty" yaml:"proxyProtocol,omitempty"`
}

// ProxyProtocol is a version of the PROXY protocol; empty is none.
type ProxyProtocol string

// ProxyV2 is the only supported version.
const ProxyV2 ProxyProtocol = "v2"

// Modes of a peering.
const (
	ModeInBand    = "InBand"
	ModeOutOfBand = "OutOfBand"
)

// Peer is one peer in the configuration. Without a public key it sets options for the peer with
// that name that joins by ticket.
type Peer struct {
	Name             string         `json:"name" yaml:"name"`
	PublicKey        string         `json:"publicKey,omitempty" yaml:"publicKey,omitempty"`
	PresharedKeyFile string         `json:"presharedKeyFile,omitempty" yaml:"presharedKeyFile,omitempty"`
	Endpoints        []string       `json:"endpoints,omitempty" yaml:"endpoints,omitempty"`
	Mode             string         `json:"mode,omitempty" yaml:"mode,omitempty"`
	OutOfBand        *PeerOutOfBand `json:"outOfBand,omitempty" yaml:"outOfBand,omitempty"`
	// Allow lists the services here that the peer may reach; nothing by default.
	Allow      []string   `json:"allow,omitempty" yaml:"allow,omitempty"`
	Local      *PeerLocal `json:"local,omitempty" yaml:"local,omitempty"`
	Stock      bool       `json:"stock,omitempty" yaml:"stock,omitempty"`
	AllowedIPs []string   `json:"allowedIPs,omitempty" yaml:"allowedIPs,omitempty"`
	// Labels are the operator's own. Status and the screen group peers by them. Names and values
	// follow the rules of Kubernetes; at most 32.
	Labels map[string]string `json:"labels,omitempty" yaml:"labels,omitempty"`
	// Services are services of clusters, by the Multi-Cluster Services API.
	Services *PeerServices `json:"services,omitempty" yaml:"services,omitempty"`
}

// PeerServices selects by namespace which services of clusters a peer gets and provides. A
// namespace means the same at both ends. An asterisk matches any characters. Namespaces that begin
// with kube- and the gateway's own match only in full. Nothing by default.
type PeerServices struct {
	// Export lists the namespaces whose exported services the peer may have.
	Export []string `json:"export,omitempty" yaml:"export,omitempty"`
	// Import lists the namespaces whose services are imported from the peer.
	Import []string `json:"import,omitempty" yaml:"import,omitempty"`
}

// PeerOutOfBand says how to reach the peer's services outside the tunnel.
type PeerOutOfBand struct {
	AuthURL      string `json:"authURL,omitempty" yaml:"authURL,omitempty"`
	APIServerURL string `json:"apiServerURL,omitempty" yaml:"apiServerURL,omitempty"`
	CAFile       string `json:"caFile,omitempty" yaml:"caFile,omitempty"`
	TokenFile    string `json:"tokenFile,omitempty" yaml:"tokenFile,omitempty"`
}

// PeerLocal configures listeners here that lead to the peer's services: IP:PORT, or IP:FIRST-LAST
// for several consecutive ports, with /UDP appended for UDP. Port 0 chooses a free one.
type PeerLocal struct {
	APIServer string            `json:"apiServer,omitempty" yaml:"apiServer,omitempty"`
	Named     map[string]string `json:"named,omitempty" yaml:"named,omitempty"`
	// Services are services of clusters, by NAMESPACE/NAME:PORT, with /UDP appended for UDP and
	// @HOSTNAME for one pod of a headless service. services.import must match the namespace.
	// Imported ports that are not listed here have a listener at a free port of 127.0.0.1.
	Services map[string]string `json:"services,omitempty" yaml:"services,omitempty"`
}
