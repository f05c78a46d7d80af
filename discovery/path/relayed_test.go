package path

import "testing"

// Where a peer was heard may be its address on a relay: remembered as such, it must not
// pass for a direct path, or the way back to one would be closed.
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
