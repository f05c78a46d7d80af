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

// Transports between the gateway and the server. What the server relays is UDP always.
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

// Server is a TURN server and the account there.
type Server struct {
	// Address is host:port, or a host alone for the port that the RFC gives.
	Address string
	// Username and Password are long-term credentials. Those of the TURN REST scheme
	// are such too; see [Expiry].
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

// Validate says what is wrong with the server's description.
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

// hostPort splits the address. The port is 0 when none is given.
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
	// AddServer passes handle the STUN messages and ChannelData that come from exactly
	// that address, until remove is called; handle reports whether it was its own. It does
	// not block, and keeps nothing of the packet.
	AddServer(addr netip.AddrPort, handle func(packet []byte) bool) (remove func())
}

// RunWriter is a [Socket] that can be handed some datagrams at once.
type RunWriter interface {
	// WriteRun sends datagrams to one address, in order. It keeps nothing of them.
	WriteRun(bs [][]byte, to netip.AddrPort) error
}

// Options of a [Client]. Server, ID and Attach are required, and Socket unless the
// transport is TCP or TLS.
type Options struct {
	Server Server
	// ID names a new allocation; each answer must be another ("relay-3").
	ID func() string
	// Socket is what UDP leaves from.
	Socket Socket
	// Attach makes an allocation a way in and out. send blocks no longer than the socket
	// does, or 5 ms for each of WireGuard's data, and keeps nothing; it fails with
	// [ErrNotPermitted] or [ErrDenied] for an address that the server would not pass
	// on to, and with [ErrClosed] when the allocation is gone. For an address whose
	// permission is being asked for, WireGuard's last handshake message of each type to each
	// port waits for the answer, 1 s at most, and 16 in all; everything else is lost without
	// an error. deliver is given what arrived, may not keep it, and must not block. It is
	// not called any more once remove is.
	Attach func(id string, send func(packets [][]byte, to netip.AddrPort) error) (deliver func(packet []byte, from netip.AddrPort), remove func())
	// Dial opens connections for TCP and TLS; nil = net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxied reports whether Dial reaches host:port through a proxy, which then gets the name
	// as it is; nil = never.
	Proxied func(address string) bool
	// Resolve resolves the server's name; nil = the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// OnChange is called when [Client.Allocation] answers differently than before. It is
	// called without locks by Run and must not block.
	OnChange func()
	// Previous is an allocation of an earlier process, to be adopted if it is there still;
	// nil = there was none.
	Previous *Grant
	// OnGrant is told what the next process needs to adopt the allocation, when there is
	// one over UDP and about every 5 minutes. Like OnChange it must not block. nil = nobody is.
	OnGrant func(Grant)
	// Logger is told of allocations, losses and failures; nil = nobody is.
	Logger *slog.Logger
}

// Allocation is a relayed address that works.
type Allocation struct {
	// ID is unique in the life of the process.
	ID string
	// Relayed is the address at the server: what is sent there arrives here, if it
	// comes from an IP address with a permission.
	Relayed netip.AddrPort
	// Mapped is where the server sees us; over UDP, the address of the gateway's own socket behind its NAT.
	Mapped netip.AddrPort
	// Server is the configured address.
	Server string
	// Transport is udp, tcp or tls.
	Transport string
}

// Status is how the client is doing. It prints no secrets.
type Status struct {
	Address   string
	Transport string         // udp, tcp, tls; "" while there is no allocation
	Relayed   netip.AddrPort // not valid while there is no allocation
	Mapped    netip.AddrPort
	RTT       time.Duration // of the last transaction; 0 = none yet
	Err       string        // what failed last, why, and what to do; "" = all is well
	Fault     Fault         // what that is about; "" = all is well
	Since     time.Time     // when the allocation was made or lost
	NextTry   time.Time     // when it is tried again; zero while there is an allocation
	// AskedAt is since when [Client.Ask] waits for the server's answer; zero while it does not.
	AskedAt time.Time
	// Fallback is why the transport is not UDP, when it may be and is not.
	Fallback string
	// Denied are wanted addresses that the server refuses to relay to, with the reason.
	Denied  map[netip.Addr]string
	Traffic Traffic
}

// Fault is what keeps a relay from being used.
type Fault string

// Faults.
const (
	FaultSilent      Fault = "silent"      // the server does not answer, or is not found
	FaultCredentials Fault = "credentials" // it does not take the user and password
	FaultCertificate Fault = "certificate" // its own certificate does not do
	FaultServer      Fault = "server"      // it refuses for another reason, or cannot be used
)

// Traffic counts datagrams since the client was made.
type Traffic struct {
	Sent, Received uint64
	// QueueDrops were sent faster than the transport took them.
	QueueDrops uint64
	// PermissionDrops were for addresses without a permission, or one that came too late.
	PermissionDrops uint64
	// Unsent met an error of the socket or the library.
	Unsent uint64
	// Malformed came from the server's address and were not what TURN says.
	Malformed uint64
}

// Errors of sending over an allocation. Who sends adds the address and the allocation.
var (
	// ErrNotPermitted is sending to an address that nobody asked for with
	// [Client.Permit].
	ErrNotPermitted = errors.New("no permission was asked for this address")
	// ErrDenied is sending to an address that the server refuses to relay to.
	ErrDenied = errors.New("the server refuses to relay to this address")
	// ErrClosed is sending over an allocation that is gone.
	ErrClosed = errors.New("the allocation is gone")
	// ErrRunning is returned by a second [Client.Run].
	ErrRunning = errors.New("relay: the client runs already")
)
