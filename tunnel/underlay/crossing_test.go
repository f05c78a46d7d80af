package underlay

import (
	"encoding/binary"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Whoever forges the source of a path fills what is held of a peer's initiations: the
// peer's own must not be lost for it.
func TestForgedCopiesDoNotCrowdOutTheInitiationThatCrosses(t *testing.T) {
	b, x, _ := managed(t, New)
	c := plain(t, loopback4)
	path := peer.Direct(localAddr(c))
	b.SetCandidates("x", []peer.Path{path})
	b.SetSelected("x", path)
	b.Insist("x")
	mustSend(t, b, x, initiation(1))
	expect(t, c, "our initiation", initiation(1))
	const genuine = 100
	for i := range uint32(heldCopies) {
		write(t, c, initiation(10+i), b.addr())
	}
	write(t, c, initiation(genuine), b.addr())
	// Those that are held come 250 ms later, or before it on a machine that is very slow.
	for got := uint32(0); got != genuine; {
		got = binary.LittleEndian.Uint32(b.next(t).data[4:])
	}
}
