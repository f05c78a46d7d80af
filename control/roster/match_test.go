package roster

import (
	"testing"

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
