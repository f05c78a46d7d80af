package handshake_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/handshake"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestInitiationsAreReadAsTheyWereMade(t *testing.T) {
	var keys [3]peer.PrivateKey
	for i := range keys {
		k, err := peer.NewPrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = k
	}
	from, ephemeral, to := keys[0], keys[1], keys[2]
	stamp := time.Unix(1927944306, 7<<24)
	m, err := handshake.Initiation(from, ephemeral, to.Public(), stamp)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tunnel.NewInspector(to).Initiation(m)
	if want := (tunnel.Initiation{ForUs: true, Static: from.Public(), Stamp: stamp}); err != nil || got.ForUs != want.ForUs || got.Static != want.Static || !got.Stamp.Equal(want.Stamp) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
