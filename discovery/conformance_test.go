package discovery_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
)

// The kinds of gateways, and how each pair of them must meet: D directly, P directly by ordered
// punching, R over a relay.
var (
	kinds = []struct {
		name string
		nat  func() simnet.Behaviour
	}{
		{"public", nil},
		{"full cone", simnet.FullCone},
		{"address-restricted", simnet.AddressRestricted},
		{"port-restricted", simnet.PortRestricted},
		{"poisonable", simnet.Poisonable},
		{"symmetric", simnet.Symmetric},
	}
	conformance = []string{
		"DDDDDD",
		" DDDDD",
		"  DDDD",
		"   DPR",
		"    PR",
		"     R",
	}
)

// TestEachPairMeetsAsItShould runs every pair with each side as the ticket's maker. The other
// side has the maker's candidates; the maker knows nothing of the other.
func TestEachPairMeetsAsItShould(t *testing.T) {
	t.Run("plain STUN servers", func(t *testing.T) { eachPair(t, false) })
	t.Run("NATs tested", func(t *testing.T) { eachPair(t, true) })
}

// eachPair is that test, with known filtering if the NATs are tested.
func eachPair(t *testing.T, tested bool) {
	for i, row := range conformance {
		for j := i; j < len(kinds); j++ {
			for _, reverse := range reversed {
				maker, joiner := kinds[i], kinds[j]
				if reverse {
					maker, joiner = joiner, maker
				}
				if reverse && i == j {
					continue
				}
				t.Run(fmt.Sprintf("%s invites %s", maker.name, joiner.name), func(t *testing.T) {
					inParty(t, true, func(t *testing.T, p *party) {
						if tested {
							p.stun = []string{stun1, behaviour1}
							defer p.addTwoAddressServer(t)()
						}
						a, b := p.add("maker", behaviour(maker.nat)), p.add("joiner", behaviour(joiner.nat))
						for _, g := range []*gateway{a, b} {
							if err := g.agent.WaitGathered(t.Context()); err != nil {
								t.Fatal(err)
							}
						}
						if tested {
							time.Sleep(8 * time.Second) // virtual: a test takes up to 6 s
						}
						synctest.Wait()
						a.know(b)
						b.know(a, a.agent.Candidates()...)
						meet(t, p, row[j], a, b)
					})
				})
			}
		}
	}
}

func meet(t *testing.T, p *party, how byte, a, b *gateway) {
	t.Helper()
	switch how {
	case 'D':
		d := p.connected(3*time.Second, path.KindDirect, a, b)
		t.Logf("direct after %v", d)
	case 'P':
		r := p.until(5*time.Second, "connected somehow", func() bool { return a.to(b).Kind != path.KindNone && b.to(a).Kind != path.KindNone })
		d := p.connected(60*time.Second, path.KindDirect, a, b)
		t.Logf("connected after %v, direct after %v", r, r+d)
	case 'R':
		d := p.connected(5*time.Second, path.KindRelay, a, b)
		t.Logf("relayed after %v", d)
	}
	time.Sleep(time.Minute) // virtual
	want := path.KindDirect
	if how == 'R' {
		want = path.KindRelay
	}
	for _, s := range []path.Snapshot{a.to(b), b.to(a)} {
		if s.Kind != want {
			t.Errorf("a minute later the path is %v (%s) because %s, want %s", s.Selected, s.Kind, s.Reason, want)
		}
	}
}
