package probe

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"testing"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

// vector is an exchange of testdata/vectors.json, which a program in another language computed
// from the package documentation. The private keys are those of RFC 7748 §6.1.
type vector struct {
	Name                                           string
	PrivateKey, PeerPrivateKey, PresharedKey, TxID hexBytes
	BootID, Counter                                uint64
	Generation, PathID                             uint16
	Initial                                        bool
	Flags                                          uint8
	Size                                           int
	Source                                         netip.AddrPort

	RequestKey, ReplyKey, KeyID, Request, Response hexBytes
}

type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Version string
		Vectors []vector
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if file.Version != "1.0" || len(file.Vectors) == 0 {
		t.Fatalf("%d vectors of version %q, want some of 1.0", len(file.Vectors), file.Version)
	}
	return file.Vectors
}

// sides returns the two probers of a vector: the requesting one just before the request, the
// other when it already knows the generation.
func (v vector) sides(t testing.TB) (from, to *Prober) {
	t.Helper()
	own := peer.PrivateKeyFromBytes([32]byte(v.PrivateKey))
	other := peer.PrivateKeyFromBytes([32]byte(v.PeerPrivateKey))
	psk := peer.PresharedKeyFromBytes([32]byte(v.PresharedKey))
	from = newProber(t, own, v.BootID, bytes.NewReader(v.TxID), Peer{other.Public(), psk})
	to = newProber(t, other, 1, nil, Peer{own.Public(), psk})

	s := from.peers[other.Public()]
	s.out.counter = v.Counter - 1
	s.out.generation = v.Generation
	s.out.current = s.generation(true, v.BootID, v.Generation)
	s.out.known = !v.Initial

	s = to.peers[own.Public()]
	s.in.restart(v.BootID)
	to.accept(s, s.in.follow(s.schedule, v.Generation))
	return from, to
}

func TestVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			from, to := v.sides(t)
			other := to.own.Public()
			o := from.peers[other].out
			k := o.current
			if v.Initial {
				k = o.initial
			}
			if !bytes.Equal(k.request[:], v.RequestKey) || !bytes.Equal(k.reply[:], v.ReplyKey) || !bytes.Equal(k.id[:], v.KeyID) {
				t.Errorf("keys are %x, %x, id %x; want %x, %x, id %x", k.request, k.reply, k.id, v.RequestKey, v.ReplyKey, v.KeyID)
			}
			b, tx, err := from.Request(other, RequestOptions{PathID: v.PathID, Flags: v.Flags, Size: v.Size})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b, v.Request) || !bytes.Equal(tx[:], v.TxID) {
				t.Errorf("request\n     %x\nwant %x", b, v.Request)
			}
			r, ok := to.Handle(v.Request, v.Source)
			if !ok || r.Kind != Request || r.BootID != v.BootID || r.PathID != v.PathID || r.Flags != v.Flags || r.Peer != from.own.Public() {
				t.Fatalf("handled as %+v, %v, want the request", r, ok)
			}
			if !bytes.Equal(r.Reply, v.Response) {
				t.Errorf("response\n     %x\nwant %x", r.Reply, v.Response)
			}
			r, ok = from.Handle(v.Response, netip.MustParseAddrPort("192.0.2.9:51820"))
			if !ok || r.Kind != Response || r.Mapped != v.Source || r.TxID != stunwire.TxID(v.TxID) || r.PathID != v.PathID {
				t.Errorf("handled as %+v, %v, want the response", r, ok)
			}
		})
	}
}
