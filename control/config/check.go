package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/control/api"
)

// Bounds of the overlay's MTU in bytes: IPv6 needs 1280 (RFC 8200 §5), and jumbo
// frames carry no more than 9000.
const (
	minMTU = 1280
	MaxMTU = 9000
	// maxConnectionRate is more than a gateway can do.
	maxConnectionRate = 100_000
)

// MaxSocketPath is the maximum length of a Unix socket's path in bytes: sun_path holds 108 with the
// terminating zero (unix(7)).
const MaxSocketPath = 107

// checker checks a decoded document, collects the problems and builds the resolved form.
type checker struct {
	file, dir string
	doc       *api.Gateway
	origins   map[string]Origin
	files     fileReader
	lookupEnv func(string) (string, bool) // nil: none
	problems  Problems
	warnings  Problems
	named     map[string]bool // the named services of this gateway
}

func (c *checker) fail(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{origin(c.origins, path), path, oneLine(fmt.Sprintf(format, args...))})
}

func (c *checker) warn(path, format string, args ...any) {
	c.warnings = append(c.warnings, Problem{origin(c.origins, path), path, oneLine(fmt.Sprintf(format, args...))})
}

// resolve checks everything in the order of the file.
func (c *checker) resolve() *Resolved {
	c.fillDefaults()
	proxy := c.proxy("spec.proxy")
	spec := &c.doc.Spec
	c.name()
	r := &Resolved{
		File: c.file, Document: *c.doc, Proxy: proxy, Name: c.doc.Metadata.Name, origins: c.origins,
		MTU: spec.MTU, ConnectionRate: spec.Limits.ConnectionsPerSecond, HTTPAddress: spec.HTTP.Address, ListenPort: *spec.Listen.Port,
		StateDir:    c.path("spec.stateDir", spec.StateDir),
		AdminSocket: c.path("spec.admin.socket", spec.Admin.Socket),
	}
	c.privateKey(r)
	if spec.MTU != 0 && (spec.MTU < minMTU || spec.MTU > MaxMTU) {
		c.fail("spec.mtu", "%d is outside %d to %d (0 lets the gateway choose)", spec.MTU, minMTU, MaxMTU)
	}
	if n := spec.Limits.ConnectionsPerSecond; n < 0 || n > maxConnectionRate {
		c.fail("spec.limits.connectionsPerSecond", "%d is outside 0 to %d (0 is %d)", n, maxConnectionRate, api.DefaultConnectionsPerSecond)
	}
	if len(r.AdminSocket) > MaxSocketPath {
		c.fail("spec.admin.socket", "%q is %d bytes long, and a socket's path holds %d (choose a shorter one)", r.AdminSocket, len(r.AdminSocket), MaxSocketPath)
	}
	if spec.HTTP.Address != "" {
		c.listenAddress("spec.http.address", spec.HTTP.Address)
	}
	r.Discovery = c.discovery(&spec.Discovery)
	r.Services = c.services(&spec.Services)
	r.Discovery.LAN = c.lan("spec.discovery.lan", &spec.Discovery.LAN)
	if spec.Kubernetes != nil {
		r.Kubernetes = c.kubernetes("spec.kubernetes", spec.Kubernetes)
		if len(spec.Peers) > 0 {
			c.warn("spec.peers", "ignored in a cluster (make a Peer object of each: kubectl explain peers.postern.dev)")
		}
		return r
	}
	r.Peers = c.peers(spec.Peers, r.PrivateKey)
	return r
}

// fillDefaults sets what is unset.
func (c *checker) fillDefaults() {
	spec := &c.doc.Spec
	if spec.StateDir == "" {
		spec.StateDir = DefaultStateDir
	}
	if spec.Listen.Port == nil {
		port := uint16(DefaultListenPort)
		spec.Listen.Port = &port
	}
	if spec.Admin.Socket == "" {
		spec.Admin.Socket = DefaultSocket
	}
	if spec.Limits.ConnectionsPerSecond == 0 {
		spec.Limits.ConnectionsPerSecond = api.DefaultConnectionsPerSecond
	}
	c.fillDiscovery(&spec.Discovery)
	if a := spec.Services.Auth; a != nil && a.Issuer != nil {
		c.fillIssuer("spec.services.auth.issuer", a.Issuer)
	}
	if k := spec.Kubernetes; k != nil {
		c.fillKubernetes(k)
	}
	for i := range spec.Peers {
		if spec.Peers[i].Mode == "" {
			spec.Peers[i].Mode = api.ModeInBand
		}
	}
}

// given reports whether this very field was set.
func (c *checker) given(path string) bool {
	_, ok := c.origins[path]
	return ok
}

func (c *checker) name() {
	if c.doc.Metadata.Name == "" {
		c.fail("metadata.name", "missing (name this cluster, as its peers will call it)")
	} else if err := api.CheckName(c.doc.Metadata.Name); err != nil {
		c.fail("metadata.name", "%v", err)
	}
}

// path resolves a path of the file relative to the file.
func (c *checker) path(field, p string) string {
	if p == "" || filepath.IsAbs(p) || origin(c.origins, field).Source != FromFile {
		return p
	}
	return filepath.Join(c.dir, p)
}

// dialAddress requires host:port with both set.
func (c *checker) dialAddress(path, s string) {
	if s == "" {
		c.fail(path, "missing (want host:port)")
		return
	}
	if err := CheckDialAddress(s); err != nil {
		c.fail(path, "%v", err)
	}
}

// listenAddress requires host:port, where the host may be empty and the port 0.
func (c *checker) listenAddress(path, s string) {
	if _, _, err := splitHostPort(s); err != nil {
		c.fail(path, "%v", err)
	}
}

// CheckDialAddress reports why s cannot be dialled, or nil: it requires host:port with a host name
// or IP address and a port from 1.
func CheckDialAddress(s string) error {
	host, port, err := splitHostPort(s)
	if err != nil {
		return err
	}
	if host == "" {
		return fmt.Errorf("%q has no host (want host:port)", s)
	}
	if port == 0 {
		return fmt.Errorf("%q has port 0 (want 1 to 65535)", s)
	}
	if a, err := netip.ParseAddr(host); err == nil && (a.IsUnspecified() || a.IsMulticast()) {
		return fmt.Errorf("%q is not an address that can be dialled", s)
	}
	return nil
}

// splitHostPort splits host:port and checks both parts.
func splitHostPort(s string) (string, uint16, error) {
	host, portText, err := net.SplitHostPort(s)
	if _, notIP := netip.ParseAddr(s); err != nil && (notIP == nil || isHostName(s)) {
		return "", 0, fmt.Errorf("%q has no port (want %s)", s, net.JoinHostPort(s, "PORT"))
	}
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port (IPv6 addresses go in brackets: \"[2001:db8::1]:443\")", s)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q has no port from 0 to 65535", s)
	}
	if host == "" {
		return "", uint16(port), nil
	}
	if _, err := netip.ParseAddr(host); err != nil && !isHostName(host) {
		return "", 0, fmt.Errorf("%q has neither an IP address nor a host name before the port", s)
	}
	return host, uint16(port), nil
}

// isHostName follows RFC 1123 §2.1 and allows the underscore that some names have. A name of digits
// and dots alone is a mistyped address.
func isHostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if len(s) == 0 || len(s) > 253 || strings.Trim(s, "0123456789.") == "" {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// sortedSet sorts and removes duplicates; it never changes its argument.
func sortedSet(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}
