package path

import "testing"

// The address at which a peer was heard may be its address on a relay. Stored as such, it must
// not count as a direct path, or the direct path would never be tried again.
func TestARelayedAddressStaysOneHoweverItIsKnown(t *testing.T) {
	b := newBench(t, true)
	relayed := to(direct1)
	for name, given := range map[string][]Candidate{
		"relay first": {{direct1, SourceRelay}, {direct1, SourcePeer}},
		"peer first":  {{direct1, SourcePeer}, {direct1, SourceRelay}},
	} {
		b.m.SetRemote(b.now, given, false)
		if got := b.status(relayed).Source; got != SourceRelay {
			t.Errorf("%s: the source is %s, want %s", name, got, SourceRelay)
		}
	}
}
