package roster

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// fakeTunnel records the names of its peers, and refuses them if it is told to.
type fakeTunnel struct {
	names  []string
	refuse error
}

func (f *fakeTunnel) SetPeers(peers []peer.Config) error {
	if f.refuse != nil {
		return f.refuse
	}
	f.names = nil
	for _, p := range peers {
		f.names = append(f.names, p.Name)
	}
	return nil
}

func (*fakeTunnel) Abort(func(netip.Addr) bool) {}

// newRegistry returns a registry that was brought up without peers.
func newRegistry(t *testing.T, up *fakeTunnel, subscribers ...func(old, next *Roster)) *Registry {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := state.Open(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	key := peer.PrivateKeyFromBytes([32]byte{9})
	reg, err := Open(Options{
		Key: key, Config: &config.Resolved{Name: "edge"}, Store: store, Flows: forward.NewFlows(forward.Limits{}),
		Auth:        forward.NewListener(&net.TCPAddr{}),
		SetProblems: func(string, []check.OwnProblem) {}, StartedAt: time.Now(), Audit: audit.New(log), Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range subscribers {
		reg.Subscribe(f)
	}
	if err := reg.Bring(up, up); err != nil {
		t.Fatal(err)
	}
	return reg
}

func request(name string, n byte) api.PeerAddRequest {
	return api.PeerAddRequest{Peer: api.Peer{Name: name, PublicKey: peer.PrivateKeyFromBytes([32]byte{1, n}).Public().String()}}
}

// Subscribers are called with a roster in the order of subscription, once it is in force.
func TestSubscribersHearOfWhatIsInForce(t *testing.T) {
	up := &fakeTunnel{}
	var heard []string
	var reg *Registry
	tell := func(who string) func(old, next *Roster) {
		return func(old, next *Roster) {
			if reg == nil {
				return // it is being brought up
			}
			if !slices.Equal(up.names, next.Names()) || reg.Load() != next {
				t.Errorf("%s hears of %q; the tunnel has %q, readers see %q", who, next.Names(), up.names, reg.Load().Names())
			}
			for _, m := range old.Without(next) {
				heard = append(heard, who+" -"+m.Name)
			}
			for _, m := range next.Without(old) {
				heard = append(heard, who+" +"+m.Name)
			}
		}
	}
	reg = newRegistry(t, up, tell("first"), tell("second"))
	if err := reg.PeerAdd(t.Context(), request("cloud", 1)); err != nil {
		t.Fatal(err)
	}
	if err := reg.PeerRemove(t.Context(), "cloud", false); err != nil {
		t.Fatal(err)
	}
	if want := []string{"first +cloud", "second +cloud", "first -cloud", "second -cloud"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
}

// A roster that the tunnel refuses takes effect nowhere, and no subscriber gets it.
func TestWhatTheTunnelRefusesChangesNothing(t *testing.T) {
	up := &fakeTunnel{}
	told := 0
	reg := newRegistry(t, up, func(_, _ *Roster) { told++ })
	before := reg.Load()
	up.refuse = errors.New("no")
	if err := reg.PeerAdd(t.Context(), request("cloud", 1)); !errors.Is(err, up.refuse) {
		t.Errorf("got %v, want the tunnel's refusal", err)
	}
	if reg.Load() != before || told != 1 || reg.store.Peers().Len() != 0 {
		t.Errorf("peers %q, told %d times, %d stored; want none, once at the start, none", reg.Load().Names(), told, reg.store.Peers().Len())
	}
}

// Data about a removed peer would stay for ever, and nothing is stored once the registry is closed.
func TestNothingIsLearnedOfThoseWhoAreGone(t *testing.T) {
	reg := newRegistry(t, &fakeTunnel{})
	if err := reg.PeerAdd(t.Context(), request("cloud", 1)); err != nil {
		t.Fatal(err)
	}
	learned := ""
	learn := func(n byte) {
		reg.Learn(peer.PrivateKeyFromBytes([32]byte{1, n}).Public(), func(m *Member) { learned += m.Name })
	}
	learn(1)
	learn(2)
	if learned != "cloud" {
		t.Errorf("learned of %q, want of cloud once", learned)
	}
	reg.Close()
	learn(1)
	if err := reg.Change(func(*Change) error { return nil }); !errors.Is(err, ErrStopping) || learned != "cloud" {
		t.Errorf("after the end: %v, learned of %q", err, learned)
	}
}
