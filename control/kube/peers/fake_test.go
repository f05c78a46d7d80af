package peers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ Gateway = (*fakeGateway)(nil)

// fakeGateway has the peers that it is given, by default all connected.
type fakeGateway struct {
	services mcs.Services
	mu       sync.Mutex
	key      peer.PublicKey
	named    []string
	peers    []config.Peer
	sets     int
	refuse   func([]config.Peer) error
	joined   map[string]state.Peer
	status   map[string]api.PeerStatus // instead of the default
	removed  []string
	problems []check.OwnProblem
	onChange func()
	rtt      func() float64 // in seconds; nil means constant
}

func newFakeGateway() *fakeGateway {
	return &fakeGateway{key: peer.PublicKey{0xee}, joined: map[string]state.Peer{}, status: map[string]api.PeerStatus{}, onChange: func() {}}
}

func (g *fakeGateway) Status(context.Context) (api.Status, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := api.Status{Gateway: api.GatewayStatus{Name: "edge", PublicKey: g.key.String()}}
	seen := map[string]bool{}
	add := func(name string, key peer.PublicKey, allow []string, pending bool) {
		if seen[name] {
			return
		}
		seen[name] = true
		p, told := g.status[name]
		if !told {
			p = connected(name)
		}
		if g.rtt != nil {
			p.Path.RTTSeconds = g.rtt()
		}
		if pending {
			p = api.PeerStatus{State: api.StatePending, ApprovalFingerprint: peer.Fingerprint(key)}
		}
		p.Name, p.PublicKey, p.Allow = name, key.String(), allow
		p.Address = peer.OverlayAddr(key).String()
		s.Peers = append(s.Peers, p)
	}
	for _, p := range g.peers {
		if !p.Joined {
			add(p.Name, p.PublicKey, p.Allow, false)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.joined)) {
		p := g.joined[name]
		add(name, p.PublicKey, p.Allow, p.Pending)
	}
	return s, nil
}

// connected returns the status of a peer without problems.
func connected(name string) api.PeerStatus {
	ok := api.Verdict{Verdict: api.OK}
	return api.PeerStatus{
		Name: name, State: api.StateConnected, Mode: api.ModeInBand,
		Path:         api.Path{Kind: api.PathDirect, Remote: "198.51.100.7:51820", RTTSeconds: 0.012},
		Reachability: api.Reachability{Outbound: api.Targets{Auth: ok, APIServer: ok, Gateway: ok}},
	}
}

func (g *fakeGateway) Config(context.Context) ([]config.Value, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []config.Value
	for i, n := range g.named {
		out = append(out, config.Value{Path: fmt.Sprintf("spec.services.named[%d].name", i), Value: n})
	}
	return out, nil
}

func (g *fakeGateway) Services() mcs.Services { return g.services }

func (g *fakeGateway) SetPeers(_ context.Context, list []config.Peer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sets++
	if g.refuse != nil {
		if err := g.refuse(list); err != nil {
			return err
		}
	}
	g.peers = slices.Clone(list)
	return nil
}

func (g *fakeGateway) PeerRemove(_ context.Context, name string, _ bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.ContainsFunc(g.peers, func(p config.Peer) bool { return p.Name == name && !p.Joined }) {
		return errors.New("its object says what it is")
	}
	delete(g.joined, name)
	g.removed = append(g.removed, name)
	return nil
}

func (g *fakeGateway) PeerApprove(_ context.Context, name string, r api.PeerApproveRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.joined[name]
	if r.Fingerprint != p.PublicKey.String() {
		return errors.New("another key waits")
	}
	p.Pending = false
	g.joined[name] = p
	return nil
}

func (g *fakeGateway) Joined() []state.Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []state.Peer
	for _, name := range slices.Sorted(maps.Keys(g.joined)) {
		out = append(out, g.joined[name])
	}
	return out
}

func (g *fakeGateway) NoteObject(name string, key peer.PublicKey) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.joined[name]; ok {
		p.ObjectKey = key
		g.joined[name] = p
	}
	return nil
}

func (g *fakeGateway) OnChange(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onChange = f
}

func (g *fakeGateway) SetProblems(_ string, list []check.OwnProblem) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.problems = list
}

// has returns the gateway's peers by name, and how often they were set.
func (g *fakeGateway) has() (byName map[string]config.Peer, sets int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	byName = map[string]config.Peer{}
	for _, p := range g.peers {
		byName[p.Name] = p
	}
	return byName, g.sets
}

// unasked is a cluster that gets no requests.
type unasked struct{}

func (unasked) Namespace() string                                                    { return "postern" }
func (unasked) Group(schema.GroupVersion, ...runtime.Object) (rest.Interface, error) { return nil, nil }
