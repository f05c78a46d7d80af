package outbound

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/netstack"
)

// checks are fake checks with one finding. They count the wakes.
type checks struct {
	found verdict.Finding
	woken int
}

func (c *checks) Finding(string, string) verdict.Finding { return c.found }
func (c *checks) Wake(string)                            { c.woken++ }
func (c *checks) Check(context.Context, string) (check.Round, error) {
	return check.Round{}, errors.New("not checked")
}

// A connection that fails shows that a verdict may be outdated, unless that is of a failure already.
func TestAConnectionThatFailsWakesTheChecks(t *testing.T) {
	for _, c := range []struct {
		name  string
		found verdict.Finding
		woken int
	}{
		{"it was well", verdict.Finding{Outcome: api.OK}, 1},
		{"it came and went, and was well", verdict.Finding{Outcome: api.Warning, Code: catalogue.Intermittent}, 1},
		{"it has failed", verdict.Finding{Outcome: api.Error, Code: catalogue.APIServerRefused}, 0},
	} {
		s := New(Options{
			Peers: &roster.Registry{View: roster.NewView(roster.Of(&roster.Member{Name: "cloud"}), nil)},
			Dial:  func(context.Context, netip.AddrPort) (*netstack.Conn, error) { return nil, errors.New("refused") },
		})
		fake := &checks{found: c.found}
		s.Attach(fake)
		if _, err := s.dial(t.Context(), forward.Target{Peer: "cloud", Service: api.ServiceAPIServer}); err == nil {
			t.Errorf("%s: a connection", c.name)
		}
		if fake.woken != c.woken {
			t.Errorf("%s: the checks were woken %d times, want %d", c.name, fake.woken, c.woken)
		}
		s.Close()
	}
}
