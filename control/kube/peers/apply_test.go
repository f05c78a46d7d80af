package peers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/testenv/fakeclient"
	"github.com/postern-dev/postern/tunnel/peer"
)

func invited(name string, key peer.PublicKey) state.Peer {
	return state.Peer{Name: name, PublicKey: key, Mode: api.ModeInBand, Allow: []string{"auth"}, Origin: state.OriginInvited}
}

// aged returns a candidate whose object is that many minutes old.
func aged(name string, key byte, minutes int) *candidate {
	o := object(name)
	o.CreationTimestamp = metav1.NewTime(noon.Add(-time.Duration(minutes) * time.Minute))
	return &candidate{object: o, peer: config.Peer{Name: name, PublicKey: peer.PublicKey{key}}}
}

func names(list []config.Peer) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// If the gateway refuses a peer for its own reasons, the others still work.
func TestOneThatTheGatewayRefusesDoesNotKeepOthersFromIt(t *testing.T) {
	g := newFakeGateway()
	fewest := 99
	g.refuse = func(list []config.Peer) error {
		if slices.ContainsFunc(list, func(p config.Peer) bool { return strings.HasPrefix(p.Name, "bad") }) {
			return errors.New("no")
		}
		fewest = min(fewest, len(list))
		return nil
	}
	c, err := New(Options{Cluster: unasked{}, Gateway: g})
	if err != nil {
		t.Fatal(err)
	}
	old := []*candidate{aged("a", 1, 9), aged("b", 2, 8)}
	c.apply(t.Context(), old)
	next := []*candidate{aged("a", 1, 9), aged("b", 2, 8), aged("bad-1", 3, 7), aged("c", 4, 6), aged("bad-2", 5, 5)}
	c.apply(t.Context(), next)
	byName, sets := g.has()
	if len(byName) != 3 || byName["c"].Name == "" || fewest < 2 {
		t.Errorf("the gateway has %v, and had %d at times", byName, fewest)
	}
	for _, x := range next {
		if bad := strings.HasPrefix(x.object.Name, "bad"); bad != (x.refused != nil) {
			t.Errorf("%s: refused for %+v", x.object.Name, x.refused)
		}
	}
	again := []*candidate{aged("a", 1, 9), aged("b", 2, 8), aged("bad-1", 3, 7), aged("c", 4, 6), aged("bad-2", 5, 5)}
	c.apply(t.Context(), again)
	if _, now := g.has(); now != sets || again[2].refused == nil {
		t.Errorf("the same set was offered %d times more; refused for %+v", now-sets, again[2].refused)
	}
	// Once it is removed, unwanted peers are removed, too.
	c.apply(t.Context(), []*candidate{aged("b", 2, 8), aged("bad-1", 3, 7)})
	if byName, _ := g.has(); len(byName) != 1 || byName["b"].Name == "" {
		t.Errorf("the gateway has %v", byName)
	}
}

func TestOfTwoWithOneKeyTheOlderCounts(t *testing.T) {
	list := []*candidate{aged("a-new", 1, 1), aged("z-old", 1, 5), aged("self", 9, 3), aged("other", 2, 4)}
	admit(list, peer.PublicKey{9})
	if got := names(chosen(list)); got != "other z-old" {
		t.Errorf("in force are %s", got)
	}
	for _, x := range []*candidate{list[0], list[2]} {
		if x.refused == nil || x.refused.code != catalogue.PeerDuplicate {
			t.Errorf("%s: refused for %+v", x.object.Name, x.refused)
		}
	}
}

func TestNoStockPeerHasAnAddressOfAnother(t *testing.T) {
	stock := func(name string, key byte, age int, holds byte) *candidate {
		c := aged(name, key, age)
		c.peer.Stock, c.peer.AllowedIPs = true, []netip.Prefix{netip.PrefixFrom(peer.OverlayAddr(peer.PublicKey{holds}), 128)}
		return c
	}
	list := []*candidate{aged("old", 1, 9), stock("takes-old", 2, 8, 1), stock("office", 3, 7, 4), aged("late", 4, 6), aged("other", 5, 5)}
	admit(list, peer.PublicKey{9})
	if got := names(chosen(list)); got != "office old other" {
		t.Errorf("in force are %s", got)
	}
}

func TestAnObjectAndAPeerThatJoinedAreOne(t *testing.T) {
	labelled := func(key byte) *candidate {
		c := aged("cloud", key, 1)
		c.object.Labels = map[string]string{"postern.dev/origin": "invited"}
		c.peer.Allow = []string{"apiServer"}
		return c
	}
	joined := invited("cloud", peer.PublicKey{1})
	other := invited("cloud", peer.PublicKey{2})
	rotated := invited("cloud", peer.PublicKey{3})
	rotated.ObjectKey = peer.PublicKey{1}
	refused := labelled(1)
	refused.refused = found(refused.object, catalogue.PeerRefused, "nonsense")
	pending := aged("cloud", 1, 1)
	pending.object.Spec.Pending = true
	for name, c := range map[string]struct {
		is     *candidate
		joined *state.Peer
		want   string // name, key, whether it joined, grants
		code   catalogue.Code
	}{
		"it joined":                              {labelled(1), &joined, "cloud 1 true [apiServer]", ""},
		"it has another key":                     {labelled(1), &other, "cloud 2 true []", catalogue.PeerRefused},
		"its peer has announced another":         {labelled(1), &rotated, "cloud 3 true [apiServer]", ""},
		"something is wrong with it":             {refused, &joined, "cloud 1 true []", catalogue.PeerRefused},
		"its peer is not there":                  {labelled(1), nil, "", catalogue.PeerNotInState},
		"it makes the peer":                      {aged("cloud", 1, 1), nil, "cloud 1 false []", ""},
		"it makes a peer that joined, too":       {aged("cloud", 1, 1), &joined, "cloud 1 false []", ""},
		"the name has another key at the moment": {aged("cloud", 1, 1), &other, "", ""},
		"it waits":                               {pending, nil, "", ""},
	} {
		fitJoined(c.is, c.joined)
		got := ""
		for _, p := range chosen([]*candidate{c.is}) {
			got = fmt.Sprintf("%s %d %v %v", p.Name, p.PublicKey[0], p.Joined, p.Allow)
		}
		var code catalogue.Code
		if c.is.refused != nil {
			code = c.is.refused.code
		}
		if got != c.want || code != c.code {
			t.Errorf("%s: got %q and %q, want %q and %q", name, got, code, c.want, c.code)
		}
	}
}

// A finalizer, of a tool for backups for example, may keep a deleted object for days.
func TestADeletedPeerIsGoneWhileItsObjectWaits(t *testing.T) {
	g := newFakeGateway()
	c, err := New(Options{Cluster: unasked{}, Gateway: g})
	if err != nil {
		t.Fatal(err)
	}
	live := `{}` // the object that the API server has
	c.Objects = objects.NewWriter(fakeclient.New(func(r *http.Request) (int, string) {
		if r.Method != http.MethodGet || path.Base(r.URL.Path) != "joined" {
			t.Errorf("the API server gets %s %s", r.Method, r.URL.Path)
		}
		return http.StatusOK, live
	}), "postern", "peers", "Peer")
	joined := invited("joined", peer.PublicKey{3})
	joined.ObjectKey = joined.PublicKey
	g.joined["joined"] = joined
	list := []*v1alpha1.Peer{aged("kept", 1, 9).object, aged("made", 2, 8).object, aged("joined", 3, 7).object}
	for i, o := range list {
		o.UID, o.Spec.PublicKey = types.UID(o.Name), peer.PublicKey{byte(i + 1)}.String()
	}
	list[2].Labels = map[string]string{"postern.dev/origin": "invited"}
	turn := func() {
		t.Helper()
		status, err := g.Status(t.Context())
		if err == nil {
			err = c.sync(t.Context(), list, status)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.follow(t.Context(), c.candidates)
	}
	turn()
	if got := names(g.peers); got != "joined kept made" || len(g.removed) > 0 {
		t.Fatalf("the gateway has %s, and %v were removed", got, g.removed)
	}
	for _, o := range list[1:] {
		o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: noon}, []string{"backup.example.net/keep"}
	}
	turn()
	if len(g.removed) > 0 {
		t.Errorf("%v were removed, whose objects were recreated", g.removed)
	}
	live = `{"metadata": {"name": "joined", "deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": ["backup.example.net/keep"]}}`
	turn()
	if got := names(g.peers); got != "kept" || !slices.Equal(g.removed, []string{"joined"}) {
		t.Errorf("the gateway has %s, and %v were removed", got, g.removed)
	}
}

func TestGrantsAndLabelsAreReadFromTheObject(t *testing.T) {
	g := newFakeGateway()
	g.named = []string{"registry", "metrics"}
	list, err := namedServices(context.Background(), g)
	if err != nil || len(list) != 2 || list[0].Name != "registry" {
		t.Fatalf("got %v, %v", list, err)
	}
	o := object("cloud")
	o.Spec.Allow = []string{"auth", "registry", "nothing"}
	o.Labels = map[string]string{"region": "eu", v1alpha1.LabelOrigin: ""}
	for i := range api.MaxLabels {
		o.Labels[fmt.Sprintf("z%02d", i)] = ""
	}
	r := &resolver{named: list}
	c := r.resolve(t.Context(), o)
	if c.refused != nil || !slices.Equal(c.peer.Allow, []string{"auth", "registry"}) || c.noted == nil || c.noted.params.Service != "nothing" {
		t.Errorf("got %+v, refused %+v, noted %+v", c.peer, c.refused, c.noted)
	}
	if got := c.peer.Labels; got["region"] != "eu" || len(got) != api.MaxLabels || slices.Contains(slices.Collect(maps.Keys(got)), v1alpha1.LabelOrigin) {
		t.Errorf("labels are %v, want the operator's first %d", got, api.MaxLabels)
	}
}

// A Peer may ask for services of clusters in vain: after an upgrade with other values, the gateway
// takes no part in them any more. What a Peer asks for in vain is also a problem of the gateway.
func TestAPeerThatAsksForServicesOfClustersInVain(t *testing.T) {
	o := object("cloud")
	r := &resolver{}
	if c := r.resolve(t.Context(), o); c.noted != nil {
		t.Errorf("it asks for nothing: noted %+v", c.noted)
	}
	o.Spec.Services = &v1alpha1.PeerServices{Import: []string{"shop"}}
	c := r.resolve(t.Context(), o)
	if c.refused != nil || c.noted == nil || c.noted.code != catalogue.GrantWithoutUse {
		t.Fatalf("got refused %+v, noted %+v", c.refused, c.noted)
	}
	cause, fix := catalogue.Render(c.noted.code, c.noted.params)
	if !strings.Contains(cause, "takes no part in services of clusters") || !strings.Contains(fix.String(), "mcs.enabled=true") {
		t.Errorf("got %s\n%s", cause, fix)
	}
	g := newFakeGateway()
	k, err := New(Options{Cluster: unasked{}, Gateway: g})
	if err != nil {
		t.Fatal(err)
	}
	k.candidates = []*candidate{c}
	k.tellRefused()
	if len(g.problems) != 1 || g.problems[0].Code != catalogue.GrantWithoutUse {
		t.Errorf("the gateway's problems are %+v", g.problems)
	}
	r.clusters = true
	if c := r.resolve(t.Context(), o); c.noted != nil {
		t.Errorf("the gateway takes part: noted %+v", c.noted)
	}
}
