package gateway_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/testenv/simnet"
)

const (
	// look is how often a condition is looked at, at most. A status costs some milliseconds under
	// the race detector.
	look = 50 * time.Millisecond
)

// both are the services that a peering is for.
var both = []string{api.ServiceAPIServer, api.ServiceAuth}

// TestMain has more tests run at once than there are processors: most of the time they
// wait. There are limits of some seconds in some, hence not all at once.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// world is a lab with its log: cloud is public, edge behind a port-restricted NAT.
type world struct {
	*lab.Lab
	t   *testing.T
	ctx context.Context
	log *record
}

// newWorld builds a lab that is closed, without a leak or an error, when the test ends.
// Tests that have one run in parallel: most of the time they wait.
func newWorld(t *testing.T, adjust ...func(site string, o *gateway.Options)) *world {
	t.Helper()
	t.Parallel()
	return newWorldAlone(t, adjust...)
}

// newWorldAlone is for a test that measures this process.
func newWorldAlone(t *testing.T, adjust ...func(site string, o *gateway.Options)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	w := &world{t: t, ctx: ctx, log: &record{}}
	l, err := lab.Build(ctx, lab.Options{
		Dir: t.TempDir(), Version: "test", Logger: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Adjust: func(site string, o *gateway.Options) {
			for _, a := range adjust {
				a(site, o)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Lab = l
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last of the log:\n%s", w.log.tail(12<<10))
		}
		cancel()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// addSite starts a third cluster on a public host.
func (w *world) addSite(name, addr string) *lab.Site {
	w.t.Helper()
	s, err := w.AddSite(w.ctx, simnet.HostOptions{Name: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		Link: simnet.Both(simnet.Conditions{Delay: time.Millisecond})})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// peer has edge join cloud, each granting the other both services, and waits until both
// are connected.
func (w *world) peer() {
	w.t.Helper()
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: both}), api.JoinRequest{Allow: both})
	w.connected(w.Cloud, w.Edge)
}

func (w *world) invite(s *lab.Site, r api.InviteRequest) string {
	w.t.Helper()
	out, err := s.Gateway.Invite(w.ctx, r)
	if err != nil {
		w.t.Fatalf("invite at %s: %v", s.Name, err)
	}
	return out.Ticket
}

// tryJoin has a site redeem a ticket. A busy machine may need longer than the default.
func (w *world) tryJoin(s *lab.Site, ticket string, r api.JoinRequest) (api.JoinResponse, error) {
	r.Ticket, r.Wait = ticket, cmp.Or(r.Wait, api.Duration(patience.Left()))
	return s.Gateway.Join(w.ctx, r)
}

// join is tryJoin that must succeed.
func (w *world) join(s *lab.Site, ticket string, r api.JoinRequest) api.JoinResponse {
	w.t.Helper()
	out, err := w.tryJoin(s, ticket, r)
	if err != nil {
		w.t.Fatalf("join at %s: %v", s.Name, err)
	}
	return out
}

// connected waits until two sites show each other as connected.
func (w *world) connected(a, b *lab.Site) {
	w.t.Helper()
	w.await(fmt.Sprintf("%s and %s are connected", a.Name, b.Name), func() string {
		for _, pair := range [][2]*lab.Site{{a, b}, {b, a}} {
			if p, ok := w.status(pair[0], pair[1].Name); !ok || p.State != api.StateConnected {
				return fmt.Sprintf("%s shows %s as %q (%s)", pair[0].Name, pair[1].Name, p.State, p.Reason)
			}
		}
		return ""
	})
}

// reach waits until each of two sites has answered an echo of the other. It is how a test knows
// that packets pass both ways now, where the state shown lags behind. That peers are back within 5 s
// after a fault is measured by the end-to-end tests, on a machine that does nothing else.
func (w *world) reach(a, b *lab.Site) {
	w.t.Helper()
	for _, pair := range [][2]*lab.Site{{a, b}, {b, a}} {
		w.answered(pair[0].Name+" reaches "+pair[1].Name, func(ctx context.Context) string {
			r, err := pair[0].Gateway.Ping(ctx, pair[1].Name, api.PingRequest{Layer: "overlay"})
			if err != nil {
				return err.Error()
			}
			return r.Error
		})
	}
}

// answered sends echoes until one has been answered: until ping returns "".
func (w *world) answered(what string, ping func(context.Context) string) {
	w.t.Helper()
	limit := 300 * time.Millisecond // one that is lost is soon repeated
	w.await(what, func() string {
		ctx, cancel := context.WithTimeout(w.ctx, limit)
		defer cancel()
		limit *= 2 // the machine may be too busy to answer in time
		return ping(ctx)
	})
}

// status is how a site shows a peer.
func (w *world) status(s *lab.Site, peer string) (api.PeerStatus, bool) {
	w.t.Helper()
	st, err := s.Gateway.Status(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range st.Peers {
		if p.Name == peer {
			return p, true
		}
	}
	return api.PeerStatus{}, false
}

// awaitPeer waits until a site shows a peer as it should be; want says what is missing.
func (w *world) awaitPeer(s *lab.Site, peer string, want func(api.PeerStatus) string) api.PeerStatus {
	w.t.Helper()
	var p api.PeerStatus
	w.await(s.Name+" shows "+peer+" as it should be", func() string {
		var ok bool
		if p, ok = w.status(s, peer); !ok {
			return "no such peer"
		}
		return want(p)
	})
	return p
}

// knows waits until a site has a candidate of its own from a source. Tickets carry what is known in
// time.
func (w *world) knows(s *lab.Site, source string) {
	w.t.Helper()
	w.await(s.Name+" has a candidate from "+source, func() string {
		st, err := s.Gateway.Status(w.ctx)
		if err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(st.Gateway.Candidates, func(c api.Candidate) bool { return c.Source == source }) {
			return fmt.Sprint(st.Gateway.Candidates)
		}
		return ""
	})
}

// identified waits until a site has an identity at a peer.
func (w *world) identified(s *lab.Site, peer string) {
	w.t.Helper()
	w.awaitPeer(s, peer, func(p api.PeerStatus) string {
		if p.Identity == nil {
			return "no identity yet"
		}
		return ""
	})
}

// await polls until missing gives nothing.
func (w *world) await(what string, missing func() string) {
	w.t.Helper()
	start := time.Now()
	for deadline := time.After(patience.Left()); ; {
		looked := time.Now()
		m := missing()
		if m == "" {
			return
		}
		select {
		case <-time.After(max(look, time.Since(looked))): // a busy machine has better to do
		case <-deadline:
			w.t.Fatalf("waited %s until %s: %s", time.Since(start), what, m)
		}
	}
}

// stop closes a site's gateway without waiting for its connections.
func (w *world) stop(s *lab.Site) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Stop(ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) start(s *lab.Site) {
	w.t.Helper()
	if err := s.Start(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// edit changes a site's configuration file and has the gateway read it again.
func (w *world) edit(s *lab.Site, change func(*api.GatewaySpec)) error {
	w.t.Helper()
	if err := s.Edit(change); err != nil {
		w.t.Fatal(err)
	}
	return s.Gateway.Reload(w.ctx)
}

func (w *world) mustEdit(s *lab.Site, change func(*api.GatewaySpec)) {
	w.t.Helper()
	if err := w.edit(s, change); err != nil {
		w.t.Fatal(err)
	}
}

// metric is the value of a metric at a site; labels are given as in the exposition
// format, in the order of their names.
func (w *world) metric(s *lab.Site, name, label string) float64 {
	w.t.Helper()
	registry, err := s.Gateway.Metrics()
	if err != nil {
		w.t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if strings.Join(labels, ",") == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	w.t.Fatalf("%s has no metric %s{%s}", s.Name, name, label)
	return 0
}

// audited waits for an audit record of a site with these attributes.
func (w *world) audited(s *lab.Site, event string, attrs map[string]string) {
	w.t.Helper()
	w.await(fmt.Sprintf("%s has recorded %s %v", s.Name, event, attrs), func() string {
		if w.log.count(s.Name, event, attrs) == 0 {
			return "there is no such record"
		}
		return ""
	})
}

// refused checks that a command failed, and what it said.
func (w *world) refused(what string, err error, usage bool, words ...string) {
	w.t.Helper()
	var e *admin.Error
	if !errors.As(err, &e) {
		w.t.Errorf("%s: got %v, want an error for the command to show", what, err)
		return
	}
	if e.Usage != usage {
		w.t.Errorf("%s: a mistake of usage is %v, want %v: %v", what, e.Usage, usage, err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			w.t.Errorf("%s: the message does not say %q: %v", what, word, err)
		}
	}
}

// namedEcho makes a site offer an echo server as a named service.
func (w *world) namedEcho(s *lab.Site, name string, port uint16, address string) {
	w.t.Helper()
	w.mustEdit(s, func(g *api.GatewaySpec) {
		g.Services.Named = append(g.Services.Named, api.NamedService{Name: name, Port: port, Address: address})
	})
}

// localAddress waits until a site's listener for a service of a peer is there.
func (w *world) localAddress(s *lab.Site, peer, service string) string {
	w.t.Helper()
	var address string
	w.awaitPeer(s, peer, func(p api.PeerStatus) string {
		for _, l := range p.Local {
			if l.Service == service {
				address = l.Address
				return l.Error
			}
		}
		return "there is no listener for " + service
	})
	return address
}
