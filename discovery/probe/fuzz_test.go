package probe

import (
	"bytes"
	"testing"

	"github.com/postern-dev/postern/discovery/stunwire"
)

// Of arbitrary packets, only the vectors' own request and response count, each once.
func FuzzHandle(f *testing.F) {
	vectors := readVectors(f)
	for _, v := range vectors {
		f.Add([]byte(v.Request))
		f.Add([]byte(v.Response))
	}
	f.Add(stunwire.BindingRequest(stunwire.TxID(vectors[0].TxID)))
	v := vectors[2] // all fields, and a preshared key
	f.Fuzz(func(t *testing.T, b []byte) {
		from, to := v.sides(t)
		if _, _, err := from.Request(to.own.Public(), RequestOptions{PathID: v.PathID, Flags: v.Flags}); err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(b)
		for _, p := range []*Prober{from, to} {
			for again := range 2 {
				r, ok := p.Handle(b, v.Source)
				genuine := again == 0 && (p == to && bytes.Equal(b, v.Request) || p == from && bytes.Equal(b, v.Response))
				if genuine != (r.Kind != Drop) || (r.Reply != nil) != (r.Kind == Request) || !ok && r.Reason != "" {
					t.Fatalf("handled as %+v, %v", r, ok)
				}
			}
		}
		if !bytes.Equal(b, before) {
			t.Fatal("Handle changed its input")
		}
	})
}
