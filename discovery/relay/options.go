package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// Transports between the gateway and the server. The server always relays UDP.
const (
	TransportAuto = "auto" // UDP; TCP if there is no answer; then TLS
	TransportUDP  = "udp"
	TransportTCP  = "tcp"
	TransportTLS  = "tls"
)

const (
	defaultPort    = 3478 // IANA's for TURN over UDP and TCP (RFC 8656 §3.1)
	defaultTLSPort = 5349 // IANA's for TURN over TLS
)

// Server is a TURN server with an account.
type Server struct {
	// Address is host:port, or a host alone for the RFC's default port.
	Address string
	// Username and Password are long-term credentials, including those of the TURN REST scheme; see
	// [Expiry].
	Username string
	Password Secret
	// Transport is one of the constants; "" = auto.
	Transport string
	// ServerName is the name in the server's certificate; "" = the host of Address.
	ServerName string
	// CAData is the PEM of the certificates that signed it; nil = the system's.
	CAData []byte
}

// Secret is a text that is never printed.
type Secret string

// String hides it.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}

// GoString hides it.
func (s Secret) GoString() string { return s.String() }

// Validate returns what is wrong with the server's settings.
func (s Server) Validate() error {
	if _, _, err := s.hostPort(); err != nil {
		return err
	}
	switch s.Transport {
	case "", TransportAuto, TransportUDP, TransportTCP, TransportTLS:
	default:
		return fmt.Errorf("relay %s: transport %q: must be auto, udp, tcp or tls", s.Address, s.Transport)
	}
	if s.Username == "" || s.Password == "" {
		return fmt.Errorf("relay %s: no username or no password: every TURN server wants credentials (RFC 8656 §5)", s.Address)
	}
	if s.CAData != nil {
		if _, err := s.roots(); err != nil {
			return err
		}
	}
	return nil
}

// hostPort splits the address. The port is 0 if none is given.
func (s Server) hostPort() (host string, port uint16, err error) {
	if _, err := netip.ParseAddr(s.Address); err == nil {
		return s.Address, 0, nil
	}
	host, text, err := net.SplitHostPort(s.Address)
	if err != nil {
		var a *net.AddrError
		if errors.As(err, &a) && a.Err == "missing port in address" && s.Address != "" {
			return s.Address, 0, nil
		}
		return "", 0, fmt.Errorf("relay %q: address: %w (use host:port)", s.Address, err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, fmt.Errorf("relay %q: address: use host:port with a port of 1 to 65535", s.Address)
	}
	return host, uint16(n), nil
}

// Socket is the gateway's own UDP socket.
type Socket interface {
	// WriteTo sends a datagram. It must not block for long.
	WriteTo(b []byte, to netip.AddrPort) error
	// AddServer passes STUN messages and ChannelData from exactly that address to handle, until
	// remove is called; handle reports whether the packet was its own. It does not block, and does
	// not keep the packet.
	AddServer(addr netip.AddrPort, handle func(packet []byte) bool) (remove func())
}

// RunWriter is a [Socket] that accepts several datagrams at once.
type RunWriter interface {
	// WriteRun sends datagrams to one address, in order. It does not keep them.
	WriteRun(bs [][]byte, to netip.AddrPort) error
}

// Options configure a [Client]. Server, ID and Attach are required, and Socket unless the transport
// is TCP or TLS.
type Options struct {
	Server Server
	// ID names a new allocation; each call must return another name ("relay-3").
	ID func() string
	// Socket is the socket for UDP.
	Socket Socket
	// Attach makes an allocation a way in and out. send blocks no longer than the socket, or 5 ms
	// for WireGuard data, and does not keep the packets. It fails with [ErrNotPermitted] or
	// [ErrDenied] for an address that the server would not relay to, and with [ErrClosed] if the
	// allocation is gone. While a permission is being requested, the last WireGuard handshake
	// message of each type to each port waits for the answer, 1 s at most, and 16 in all;
	// everything else is lost without an error. deliver gets what arrived, must not keep it, and
	// must not block. It is not called after remove.
	Attach func(id string, send func(packets [][]byte, to netip.AddrPort) error) (deliver func(packet []byte, from netip.AddrPort), remove func())
	// Dial opens connections for TCP and TLS; nil = net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxied reports whether Dial reaches host:port through a proxy, which then gets the name
	// unresolved; nil = never.
	Proxied func(address string) bool
	// Resolve resolves the server's name; nil = the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// OnChange is called when the result of [Client.Allocation] changes. Run calls it without
	// locks; it must not block.
	OnChange func()
	// Previous is an allocation of an earlier process, to be adopted if it still exists; nil =
	// none.
	Previous *Grant
	// OnGrant is called with what the next process needs to adopt the allocation, when there is one
	// over UDP and about every 5 minutes. Like OnChange it must not block. It may be nil.
	OnGrant func(Grant)
	// Logger logs allocations, losses and failures; nil = discard.
	Logger *slog.Logger
}

// Allocation is a working relayed address.
type Allocation struct {
	// ID is unique for the life of the process.
	ID string
	// Relayed is the address at the server: packets to it arrive here, if they come from an IP
	// address with a permission.
	Relayed netip.AddrPort
	// Mapped is where the server sees us; over UDP, the address of the gateway's own socket outside
	// its NAT.
	Mapped netip.AddrPort
	// Server is the configured address.
	Server string
	// Transport is udp, tcp or tls.
	Transport string
}

// Status is the client's state. It contains no secrets.
type Status struct {
	Address   string
	Transport string         // udp, tcp, tls; "" while there is no allocation
	Relayed   netip.AddrPort // invalid while there is no allocation
	Mapped    netip.AddrPort
	RTT       time.Duration // of the last transaction; 0 = none yet
	Err       string        // what last failed, why, and what to do; "" = all is well
	Fault     Fault         // the kind of Err; "" = all is well
	Since     time.Time     // when the allocation was made or lost
	NextTry   time.Time     // the next attempt; zero while there is an allocation
	// AskedAt is since when [Client.Ask] has been waiting for the server's answer; zero if it is
	// not.
	AskedAt time.Time
	// Fallback is why the transport is not UDP, if UDP is allowed.
	Fallback string
	// Denied are wanted addresses that the server refuses to relay to, with the reason.
	Denied  map[netip.Addr]string
	Traffic Traffic
}

// Fault is why a relay cannot be used.
type Fault string

// Faults.
const (
	FaultSilent      Fault = "silent"      // the server does not answer, or is not found
	FaultCredentials Fault = "credentials" // it does not take the user and password
	FaultCertificate Fault = "certificate" // its own certificate does not do
	FaultServer      Fault = "server"      // it refuses for another reason, or cannot be used
)

// Traffic counts datagrams since the client was created.
type Traffic struct {
	Sent, Received uint64
	// QueueDrops were sent faster than the transport took them.
	QueueDrops uint64
	// PermissionDrops were for addresses without a permission, or with one that came too late.
	PermissionDrops uint64
	// Unsent failed with an error of the socket or the library.
	Unsent uint64
	// Malformed came from the server's address and were not valid TURN.
	Malformed uint64
}

// Errors of sending on an allocation. The caller adds the address and the allocation.
var (
	// ErrNotPermitted: the address was not passed to [Client.Permit].
	ErrNotPermitted = errors.New("no permission was asked for this address")
	// ErrDenied: the server refuses to relay to the address.
	ErrDenied = errors.New("the server refuses to relay to this address")
	// ErrClosed: the allocation is gone.
	ErrClosed = errors.New("the allocation is gone")
	// ErrRunning is returned by a second [Client.Run].
	ErrRunning = errors.New("relay: the client runs already")
)
