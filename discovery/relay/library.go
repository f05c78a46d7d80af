package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/pion/logging"
	"github.com/pion/transport/v4"
	"github.com/pion/turn/v4"
)

var errNotAnAddress = errors.New("only IP addresses are resolved here")

// newLibrary returns the library's client over a link.
func newLibrary(l *link, s Server, log *slog.Logger) (*turn.Client, error) {
	return turn.NewClient(&turn.ClientConfig{
		TURNServerAddr: l.server.addr.String(), Username: s.Username, Password: string(s.Password),
		Conn: l, Net: literalNet{}, LoggerFactory: quietLogs{log},
	})
}

// literalNet is the library's resolver: the address is already an IP address. Its own resolver
// knows only IPv4 and lists the interfaces first. The rest of the interface is never called here.
type literalNet struct{ transport.Net }

// ResolveUDPAddr parses an IP address and port.
func (literalNet) ResolveUDPAddr(_, address string) (*net.UDPAddr, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotAnAddress, err)
	}
	return net.UDPAddrFromAddrPort(a), nil
}

// quietLogs makes the library log to slog at debug level: this package finds out and reports itself
// what the library warns of. Its default writes to standard error.
type quietLogs struct{ log *slog.Logger }

// NewLogger returns the logger of a part of the library.
func (q quietLogs) NewLogger(string) logging.LeveledLogger { return quietLogger(q) }

type quietLogger struct{ log *slog.Logger }

func (q quietLogger) say(msg string) {
	q.log.Debug("TURN library", "detail", msg)
}

func (q quietLogger) sayf(format string, args []any) {
	if q.log.Enabled(context.Background(), slog.LevelDebug) {
		q.say(fmt.Sprintf(format, args...))
	}
}

// Trace discards: it is called for each datagram.
func (q quietLogger) Trace(string) {}

// Tracef discards.
func (q quietLogger) Tracef(string, ...any) {}

// Debug discards: it contains transactions and nonces.
func (q quietLogger) Debug(string) {}

// Debugf discards.
func (q quietLogger) Debugf(string, ...any) {}

// Info logs.
func (q quietLogger) Info(msg string) { q.say(msg) }

// Infof logs.
func (q quietLogger) Infof(format string, args ...any) { q.sayf(format, args) }

// Warn logs.
func (q quietLogger) Warn(msg string) { q.say(msg) }

// Warnf logs.
func (q quietLogger) Warnf(format string, args ...any) { q.sayf(format, args) }

// Error logs.
func (q quietLogger) Error(msg string) { q.say(msg) }

// Errorf logs.
func (q quietLogger) Errorf(format string, args ...any) { q.sayf(format, args) }
