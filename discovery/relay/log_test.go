package relay_test

import (
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

// journal stores warnings as lines of text.
type journal struct {
	mu  sync.Mutex
	out strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.Write(b)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// warnings returns the lines that contain a text.
func (j *journal) warnings(text string) (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.out.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestOnlyARefusalOfTheServersIsWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{Deny: netip.MustParsePrefix("10.0.0.0/8").Contains}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		var j journal
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820)), Logger: j.logger()})
		g.Permit([]netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::1")})
		g.allocated(t, nil)
		time.Sleep(3 * time.Minute) // in virtual time; a refusal is tested again each minute
		lines := j.warnings("refuses an address")
		if len(lines) != 1 || !strings.Contains(lines[0], "address=10.1.2.3") {
			t.Errorf("it warns of refused addresses with %q, want once, of 10.1.2.3", lines)
		}
	})
}

// Over lossy UDP, refusals arrive over different transports in different rounds.
func TestAWrongPasswordIsWarnedOfOnce(t *testing.T) {
	l := newLoopback(t)
	server := l.account(relay.TransportAuto)
	server.Password = "wrong"
	sock := &moodySocket{Socket: realSocket(t), deaf: true}
	var j journal
	g := start(t, relay.Options{Server: server, Socket: sock, Logger: j.logger()})
	refusedOver := func(transport string) func() bool {
		return func() bool { return strings.HasPrefix(g.Status().Err, transport+": ") }
	}
	eventually(t, "a refusal over TCP", refusedOver("tcp"))
	sock.hear()
	eventually(t, "a refusal over UDP", refusedOver("udp"))
	g.stop()
	if lines := j.warnings(""); len(lines) != 1 {
		t.Errorf("it warns %d times, want once: %q", len(lines), lines)
	}
}

// moodySocket loses what it sends while it is deaf.
type moodySocket struct {
	relay.Socket
	mu   sync.Mutex
	deaf bool
}

func (s *moodySocket) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = false
}

func (s *moodySocket) WriteTo(b []byte, to netip.AddrPort) error {
	s.mu.Lock()
	deaf := s.deaf
	s.mu.Unlock()
	if deaf {
		return nil
	}
	return s.Socket.WriteTo(b, to)
}
