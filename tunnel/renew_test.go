package tunnel

import (
	"testing"
	"testing/synctest"
	"time"
)

// A session is renewed after the wait, unless the peer has renewed it.
func TestRenewingLeavesThePeerTheFirstWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cloud, edge := pair(t)
		cloud.set(edge.managed("edge"))
		edge.set(cloud.managed("cloud", cloud.addr))
		connect(cloud, edge)
		time.Sleep(time.Minute) // virtual: the next initiation is not held back as a repetition
		shaken := func(n, of *node) time.Time { return n.stats(of).LastHandshake }

		before := shaken(cloud, edge)
		if err := cloud.Renew(edge.PublicKey(), time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(800 * time.Millisecond) // virtual
		if at := shaken(cloud, edge); !at.Equal(before) {
			t.Error("a handshake was made before the wait was over")
		}
		time.Sleep(2 * time.Second) // virtual
		first := shaken(cloud, edge)
		if !first.After(before) {
			t.Error("no handshake was made after the wait")
		}

		time.Sleep(time.Minute) // virtual
		if err := cloud.Renew(edge.PublicKey(), time.Second); err != nil {
			t.Fatal(err)
		}
		if err := edge.Redial(cloud.PublicKey()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // virtual
		second := shaken(cloud, edge)
		if !second.After(first) {
			t.Fatal("the peer's own handshake did not complete")
		}
		time.Sleep(10 * time.Second) // virtual
		if at := shaken(cloud, edge); !at.Equal(second) {
			t.Error("a handshake was made though the peer had made one")
		}
	})
}
