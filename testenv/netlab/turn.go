//go:build linux

package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// TURNOptions configure a coturn server.
type TURNOptions struct {
	// Listen are the addresses for STUN and TURN, over UDP and TCP. With two of them the server
	// supports the tests of RFC 5780, on Port and the next port.
	Listen []netip.Addr
	Port   uint16 // 0 means 3478
	// Relay is the address of relayed addresses; zero means the first of Listen.
	Relay netip.Addr
	// External is the public address of Relay behind a one-to-one NAT.
	External netip.Addr
	// Username and Password are long-term credentials; both empty means a STUN server without
	// relaying.
	Username, Password string
	// DeniedPeers are address ranges ("10.0.0.0-10.255.255.255") that it does not relay to.
	DeniedPeers []string
	// CertFile and KeyFile enable TLS, at TLSPort (0 means 5349).
	CertFile, KeyFile string
	TLSPort           uint16
	// NoUDP serves clients only over TCP and TLS.
	NoUDP bool
	// FirstPort and LastPort bound the relayed ports; 0 means coturn's 49152 to 65535.
	FirstPort, LastPort uint16
	// MaxLifetime bounds allocations; 0 means coturn's hour.
	MaxLifetime time.Duration
	// Verbose logs all requests and responses.
	Verbose bool
	// UserQuota bounds a user's allocations; 0 means no bound.
	UserQuota int
}

// PrivateRanges returns what a careful operator of a TURN server denies: private, shared,
// link-local and loopback addresses (RFC 6890), so that nobody reaches the operator's own
// networks through it.
func PrivateRanges() []string {
	return []string{
		"0.0.0.0-0.255.255.255", "10.0.0.0-10.255.255.255", "100.64.0.0-100.127.255.255",
		"127.0.0.0-127.255.255.255", "169.254.0.0-169.254.255.255",
		"172.16.0.0-172.31.255.255", "192.168.0.0-192.168.255.255",
	}
}

// TURN is a coturn server on a host.
type TURN struct {
	host    *Host
	options TURNOptions
	dir     string
	proc    *Process
}

const (
	stunPort = 3478 // RFC 8489 §18.6
	tlsPort  = 5349
	realm    = "netlab"
)

// StartTURN starts a coturn server for the duration of the test, and waits until it answers.
func (h *Host) StartTURN(o TURNOptions) *TURN {
	t := h.lab.t
	t.Helper()
	if len(o.Listen) == 0 {
		t.Fatalf("netlab: a TURN server on %s needs an address", h.name)
	}
	if o.Port == 0 {
		o.Port = stunPort
	}
	if o.TLSPort == 0 {
		o.TLSPort = tlsPort
	}
	if !o.Relay.IsValid() {
		o.Relay = o.Listen[0]
	}
	dir, err := os.MkdirTemp("", "turn")
	if err != nil {
		t.Fatalf("netlab: a folder for the TURN server: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("netlab: remove the TURN server's files: %v", err)
		}
	})
	s := &TURN{host: h, options: o, dir: dir}
	s.Start()
	return s
}

// Addr returns the address for clients over UDP and TCP.
func (s *TURN) Addr() netip.AddrPort { return netip.AddrPortFrom(s.options.Listen[0], s.options.Port) }

// AltAddr returns the second such address, if the server listens on two.
func (s *TURN) AltAddr() netip.AddrPort {
	return netip.AddrPortFrom(s.options.Listen[len(s.options.Listen)-1], s.options.Port)
}

// TLSAddr returns the address for clients over TLS.
func (s *TURN) TLSAddr() netip.AddrPort {
	return netip.AddrPortFrom(s.options.Listen[0], s.options.TLSPort)
}

// Stop kills the server; all allocations are lost.
func (s *TURN) Stop() { s.proc.Kill() }

// Start starts the server after Stop, and waits until it answers.
func (s *TURN) Start() {
	t := s.host.lab.t
	t.Helper()
	s.proc = s.host.Start(Command{Args: s.args(), Dir: s.dir})
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	for {
		if err := s.answers(ctx); err == nil {
			return
		} else if ctx.Err() != nil {
			t.Fatalf("netlab: the TURN server on %s does not answer: %v", s.host.name, err)
		}
		select {
		case <-s.proc.Done():
			t.Fatalf("netlab: the TURN server on %s ended at its start%s", s.host.name, s.proc.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// args returns coturn's command line (turnserver(1)). All its files are in its own folder.
func (s *TURN) args() []string {
	o := s.options
	args := []string{
		"turnserver", "-n", "--no-cli", "--log-file", "stdout", "--simple-log",
		"--userdb", filepath.Join(s.dir, "db"), "--pidfile", filepath.Join(s.dir, "pid"),
		"--realm", realm, "--fingerprint", "--no-dtls", "--no-multicast-peers",
		"--listening-port", portText(o.Port), "--relay-ip", o.Relay.String(),
	}
	if o.Verbose {
		args = append(args, "--verbose")
	}
	for _, a := range o.Listen {
		args = append(args, "--listening-ip", a.String())
	}
	if o.Username != "" {
		args = append(args, "--lt-cred-mech", "--user", o.Username+":"+o.Password)
	} else {
		args = append(args, "--stun-only")
	}
	if o.External.IsValid() {
		args = append(args, "--external-ip", o.External.String()+"/"+o.Relay.String())
	}
	for _, r := range o.DeniedPeers {
		args = append(args, "--denied-peer-ip", r)
	}
	if o.CertFile != "" {
		args = append(args, "--cert", o.CertFile, "--pkey", o.KeyFile, "--tls-listening-port", portText(o.TLSPort))
	} else {
		args = append(args, "--no-tls")
	}
	if o.NoUDP {
		args = append(args, "--no-udp")
	}
	if o.FirstPort > 0 {
		args = append(args, "--min-port", portText(o.FirstPort), "--max-port", portText(o.LastPort))
	}
	if o.MaxLifetime > 0 {
		args = append(args, "--max-allocate-lifetime", strconv.Itoa(int(o.MaxLifetime.Seconds())))
	}
	if o.UserQuota > 0 {
		args = append(args, "--user-quota", strconv.Itoa(o.UserQuota))
	}
	return args
}

func portText(p uint16) string { return strconv.Itoa(int(p)) }

// bindingRequest is the shortest STUN message (RFC 8489 §5): type 1, no attributes, the magic
// cookie, a transaction ID.
const bindingRequest = "\x00\x01\x00\x00\x21\x12\xa4\x42netlab------"

// answers sends the server a binding request, over TCP if it does not serve UDP.
func (s *TURN) answers(ctx context.Context) error {
	network := "udp"
	if s.options.NoUDP {
		network = "tcp"
	}
	c, err := s.host.DialContext(ctx, network, s.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(bindingRequest)); err != nil {
		return err
	}
	b := make([]byte, 512)
	n, err := c.Read(b)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(b[:n]), "\x01\x01") { // binding success
		return fmt.Errorf("it answered %x", b[:n])
	}
	return nil
}
