package roster

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestAKeyDecidesWhoWasFound(t *testing.T) {
	key := func(n byte) peer.PublicKey { return peer.PrivateKeyFromBytes([32]byte{1, n}).Public() }
	cloud := &Member{Name: "cloud", Keys: Keys{Key: key(1), NextKey: key(2)}}
	r := Of(cloud)
	for _, c := range []struct {
		what, name string
		key        peer.PublicKey
		want       *Member
		otherKey   bool
	}{
		{"the peer", "cloud", key(1), cloud, false},
		{"the peer, under another name", "cloud (2)", key(1), cloud, false},
		{"the peer's next key", "cloud", key(2), cloud, false},
		{"its name with another key", "cloud", key(3), nil, true},
		{"somebody else", "edge", key(3), nil, false},
		{"no key", "cloud", peer.PublicKey{}, nil, false},
	} {
		m, otherKey := r.Match(c.name, c.key)
		if want := c.want; otherKey != c.otherKey || !otherKey && m != want || otherKey && m != cloud {
			t.Errorf("%s: got %+v, other key %v", c.what, m, otherKey)
		}
	}
}

// What an operator changes about a peer is told from what the peer does, and from what only ends a
// trial.
func TestWhatIsReconfigured(t *testing.T) {
	member := func(change func(*Member)) *Member {
		m := &Member{Name: "cloud", Grants: Grants{Allow: []string{"auth"}, Local: map[string]string{"a": ""}}}
		change(m)
		return m
	}
	for _, c := range []struct {
		what   string
		change func(*Member)
		want   bool
	}{
		{"nothing", func(*Member) {}, false},
		{"the end of a trial", func(m *Member) { m.UndoneAt = time.Now() }, false},
		{"an address that the peer announced", func(m *Member) { m.Announced = []ticket.Candidate{{Source: "host"}} }, false},
		{"a grant", func(m *Member) { m.Allow = nil }, true},
		{"a listener", func(m *Member) { m.Local["a"] = "127.0.0.1:1" }, true},
		{"an endpoint", func(m *Member) { m.Names = []string{"a.example.net:51820"} }, true},
		{"an approval", func(m *Member) { m.Pending = true }, true},
	} {
		if got := member(c.change).Reconfigured(member(func(*Member) {})); got != c.want {
			t.Errorf("%s: got %v", c.what, got)
		}
	}
}
