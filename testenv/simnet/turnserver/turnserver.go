// Package turnserver is a TURN server (RFC 8656, UDP relaying, long-term credentials) for
// simulated hosts and tests: pion/turn's server on sockets of the caller. Like hardened servers
// it can refuse peers and allocations.
//
//	server, err := turnserver.ServeHost(host, addr, turnserver.Options{
//		Users: map[string]string{"edge": "secret"},
//	})
//	defer server.Close()
//
// Closing it drops all allocations, like a restart.
//
// # Differences from other servers
//
// It rejects a wrong username or password with 400, where coturn returns 401 again. It ignores
// requests for unknown allocations, where coturn returns 437. It refuses permissions without an
// error code, where coturn returns 403. It relays only RelayAddr's family, reads no datagrams above
// 1600 bytes, and its nonces are valid for an hour.
package turnserver

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/pion/logging"
	"github.com/pion/turn/v4"

	"github.com/postern-dev/postern/testenv/simnet"
)

// Port is IANA's for TURN over UDP and TCP.
const Port = 3478

// defaultRealm is the server's default realm.
const defaultRealm = "postern.test"

// Options configure a [Server].
type Options struct {
	// Realm is the realm of the credentials; "" means postern.test.
	Realm string
	// Users are passwords by username.
	Users map[string]string
	// Secret enables TURN REST credentials instead of Users: those that
	// turn.GenerateLongTermTURNRESTCredentials derives from the same secret.
	Secret string
	// Deny refuses permissions for an address; nil permits all.
	Deny func(peer netip.Addr) bool
	// Quota is the maximum number of allocations for each user; 0 means unlimited.
	Quota int
}

// Sockets are the server's listening sockets, and its source of relayed addresses.
type Sockets struct {
	Packets []net.PacketConn // UDP
	Streams []net.Listener   // TCP, or TLS on top of it
	// ListenRelay opens a socket for an allocation; port 0 means any. Its bound port is the
	// relayed port.
	ListenRelay func(port int) (net.PacketConn, error)
	// RelayAddr is the address that clients get with that port.
	RelayAddr netip.Addr
}

// Server runs until it is closed. It is safe for concurrent use.
type Server struct {
	turn    *turn.Server
	addr    netip.AddrPort
	quota   int
	packets []*watchedPackets
	streams []*trackedListener
	relays  *generator

	mu    sync.Mutex
	users map[string]int // allocations by username
}

// ServeHost starts a server on a simulated host's address, UDP port 3478. Relayed addresses are
// other ports of that address.
func ServeHost(host *simnet.Host, addr netip.Addr, o Options) (*Server, error) {
	at := netip.AddrPortFrom(addr, Port)
	conn, err := host.ListenAddrPort(at)
	if err != nil {
		return nil, fmt.Errorf("turnserver: %w", err)
	}
	s, err := Serve(Sockets{
		Packets:   []net.PacketConn{conn},
		RelayAddr: addr,
		ListenRelay: func(port int) (net.PacketConn, error) {
			return host.ListenAddrPort(netip.AddrPortFrom(addr, uint16(port)))
		},
	}, o)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s.addr = at
	return s, nil
}

// Serve starts a server on sockets, and takes ownership of them.
func Serve(on Sockets, o Options) (*Server, error) {
	if o.Realm == "" {
		o.Realm = defaultRealm
	}
	s := &Server{quota: o.Quota, users: make(map[string]int)}
	relay := &generator{listen: on.ListenRelay, addr: on.RelayAddr}
	s.relays = relay
	permit := func(_ net.Addr, peer net.IP) bool {
		a, ok := netip.AddrFromSlice(peer)
		return ok && (o.Deny == nil || !o.Deny(a.Unmap()))
	}
	config := turn.ServerConfig{
		Realm: o.Realm, AuthHandler: o.auth(), QuotaHandler: s.grant, LoggerFactory: silent(),
		EventHandler: turn.EventHandler{OnAllocationCreated: s.created, OnAllocationDeleted: s.deleted},
	}
	for _, p := range on.Packets {
		watched := &watchedPackets{PacketConn: p, ipv6: on.RelayAddr.Is6(), ended: make(chan struct{})}
		s.packets = append(s.packets, watched)
		config.PacketConnConfigs = append(config.PacketConnConfigs, turn.PacketConnConfig{
			PacketConn: watched, RelayAddressGenerator: relay, PermissionHandler: permit,
		})
	}
	for _, l := range on.Streams {
		tracked := &trackedListener{Listener: l, open: make(map[net.Conn]struct{})}
		s.streams = append(s.streams, tracked)
		config.ListenerConfigs = append(config.ListenerConfigs, turn.ListenerConfig{
			Listener: tracked, RelayAddressGenerator: relay, PermissionHandler: permit,
		})
	}
	var err error
	if s.turn, err = turn.NewServer(config); err != nil {
		return nil, fmt.Errorf("turnserver: %w", err)
	}
	return s, nil
}

// auth returns a handler that looks users up, or derives a TURN REST user's password from the
// secret.
func (o Options) auth() turn.AuthHandler {
	if o.Secret != "" {
		return turn.LongTermTURNRESTAuthHandler(o.Secret, silent().NewLogger("auth"))
	}
	return func(username, realm string, _ net.Addr) ([]byte, bool) {
		password, ok := o.Users[username]
		return turn.GenerateAuthKey(username, realm, password), ok
	}
}

// AddrPort returns the address of a server on a simulated host.
func (s *Server) AddrPort() netip.AddrPort { return s.addr }

// Allocations returns the current number of allocations.
func (s *Server) Allocations() int { return s.turn.AllocationCount() }

// Close closes all sockets and connections, and waits until none is used any more.
//
// The library closes allocations while it may still be processing requests for them, and leaves
// accepted connections open. So Close closes connections first, then sockets, and then waits for
// the relayed ones, which the library closes.
func (s *Server) Close() error {
	for _, l := range s.streams {
		l.closeAll()
	}
	err := s.turn.Close()
	for _, p := range s.packets {
		<-p.ended
	}
	s.relays.open.Wait()
	if err != nil {
		return fmt.Errorf("turnserver: %w", err)
	}
	return nil
}

// grant is called before each allocation.
func (s *Server) grant(username, _ string, _ net.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quota == 0 || s.users[username] < s.quota
}

func (s *Server) created(_, _ net.Addr, _, username, _ string, _ net.Addr, _ int) {
	s.count(username, 1)
}

func (s *Server) deleted(_, _ net.Addr, _, username, _ string) { s.count(username, -1) }

func (s *Server) count(username string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[username] += n
}

// silent returns loggers that print nothing.
func silent() logging.LoggerFactory {
	return &logging.DefaultLoggerFactory{Writer: io.Discard, DefaultLogLevel: logging.LogLevelDisabled}
}
