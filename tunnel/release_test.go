package tunnel

import (
	"net/netip"
	"testing"

	"github.com/postern-dev/postern/tunnel/underlay"
)

// A peer that has been busy holds none of the buffers that it was busy with.
func TestUsedBuffersAreLetGo(t *testing.T) {
	packets := func() [][]byte { return [][]byte{make([]byte, 1400), make([]byte, 60)} }
	t.Run("written", func(t *testing.T) {
		inner := newFakeTun()
		bufs := packets()
		if n, err := (releasingDevice{inner}).Write(bufs, 0); n != 2 || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
		for i, want := range packets() {
			if got := <-inner.inbound; len(got) != len(want) {
				t.Errorf("packet %d arrived with %d bytes, want %d", i, len(got), len(want))
			}
			if bufs[i] != nil {
				t.Errorf("packet %d is still in the list", i)
			}
		}
	})
	t.Run("sent", func(t *testing.T) {
		b := newReleasingBind(underlay.New(underlay.Options{}))
		to, err := b.ParseEndpoint(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 9).String())
		if err != nil {
			t.Fatal(err)
		}
		bufs, before := packets(), packets()
		copy(bufs, before)
		if err := b.Send(bufs, to); err == nil {
			t.Error("a socket that is not open has sent")
		}
		for i, was := range before {
			if len(bufs[i]) != len(was) {
				t.Errorf("packet %d has %d bytes afterwards, want %d", i, len(bufs[i]), len(was))
			}
			if &bufs[i][0] == &was[0] {
				t.Errorf("packet %d is still in the list", i)
			}
		}
	})
}
