package behaviour

import (
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
)

func FuzzHandle(f *testing.F) {
	tx := stunwire.TxID([]byte("transaction!"))
	for _, m := range []stunwire.Message{
		{Class: stunwire.Success, Mapped: public, Other: a2p2}, {Class: stunwire.Success, Mapped: public, Other: a1p2},
		{Class: stunwire.Error, Code: 420},
	} {
		m.TxID = tx
		b, err := stunwire.Encode(&m, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(0))
		f.Add(b, uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, which uint8) {
		test := New(a1p1)
		test.newTx = func() stunwire.TxID { return tx }
		from := []netip.AddrPort{a1p1, a1p2, a2p1, a2p2}[which%4]
		now := time.Unix(0, 0)
		for range 40 {
			send, next := test.Poll(now)
			for _, d := range send {
				if !d.To.IsValid() || d.To.Addr().IsMulticast() || d.To.Addr().IsLoopback() {
					t.Fatalf("a request goes to %v", d.To)
				}
			}
			if next.IsZero() {
				break
			}
			test.Handle(now, b, from)
			now = next
		}
		if _, _, done, _ := test.Result(); !done {
			t.Fatal("the test does not end")
		}
	})
}
