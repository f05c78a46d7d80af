package tunnel

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/blake2s"

	"github.com/postern-dev/postern/testenv/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// tap is a host whose datagrams the test reads and writes.
type tap struct {
	underlay.PacketConn
	t    *testing.T
	addr netip.AddrPort
}

func listenTap(t *testing.T, n *memory, addr netip.AddrPort) *tap {
	t.Helper()
	c, err := n.listen(addr.Addr())(addr.Port())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &tap{c, t, addr}
}

func (p *tap) read() []byte {
	p.t.Helper()
	b := make([]byte, 1<<16)
	n, _, err := p.ReadFromUDPAddrPort(b)
	if err != nil {
		p.t.Fatal(err)
	}
	return b[:n]
}

// write sends a message. In a synctest bubble time stands still meanwhile, and two messages from
// one address at the same time would count as one, so write lets some time pass.
func (p *tap) write(m []byte, to netip.AddrPort) {
	p.t.Helper()
	if _, err := p.WriteToUDPAddrPort(m, to); err != nil {
		p.t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
}

// tapAddr is an address that only the test uses.
var tapAddr = netip.MustParseAddrPort("192.0.2.50:4500")

// makeInitiation makes an initiation as a device does, but with any timestamp.
func makeInitiation(t testing.TB, from, ephemeral peer.PrivateKey, to peer.PublicKey, stamp time.Time) []byte {
	t.Helper()
	m, err := handshake.Initiation(from, ephemeral, to, stamp)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// exchange has edge's device make an initiation for cloud, and cloud's device a response to it.
func exchange(t *testing.T) (cloud, edge *node, initiation, response []byte) {
	n, cloud, edge := pair(t)
	tap := listenTap(t, n, tapAddr)
	cloud.set(edge.as("edge"))
	edge.set(cloud.as("cloud", tapAddr))
	initiation = tap.read()
	tap.write(initiation, cloud.addr)
	return cloud, edge, initiation, tap.read()
}

func TestInspectorReadsWhatDevicesSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, edge, initiation, response := exchange(t)
		atCloud, atEdge := NewInspector(cloud.key), NewInspector(edge.key)
		got, err := atCloud.Initiation(initiation)
		if err != nil || !got.ForUs || got.Static != edge.PublicKey() {
			t.Errorf("got %+v, %v, want an initiation by %s", got, err, edge.PublicKey())
		}
		if ago := time.Since(got.Stamp); ago < 0 || ago > time.Second {
			t.Errorf("got the stamp %v, want the present", got.Stamp)
		}
		if got, err := atEdge.Initiation(initiation); err != nil || got != (Initiation{}) {
			t.Errorf("with another key: got %+v, %v, want that it is not for us", got, err)
		}
		if !atEdge.Response(response) {
			t.Error("the response is not for the initiator")
		}
		if atCloud.Response(response) || atEdge.Response(initiation) || atEdge.Response(response[:91]) {
			t.Error("something else was taken for a response for us")
		}
		response[20]++
		if atEdge.Response(response) {
			t.Error("a response that was tampered with is for us")
		}
	})
}

func TestDevicesAcceptWhatInspectorReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, _ := pair(t)
		tap, from := listenTap(t, n, tapAddr), newKey(t)
		cloud.set(peer.Config{Name: "tap", PublicKey: from.Public()})
		stamp := time.Date(2031, 2, 3, 4, 5, 6, 7<<24, time.UTC)
		m := makeInitiation(t, from, newKey(t), cloud.PublicKey(), stamp)
		tap.write(m, cloud.addr)
		if r := tap.read(); len(r) != responseSize || !NewInspector(from).Response(r) {
			t.Errorf("got %x, want a response", r)
		}
		got, err := NewInspector(cloud.key).Initiation(m)
		if err != nil || got.Static != from.Public() || !got.Stamp.Equal(stamp) {
			t.Errorf("got %+v, %v, want %s at %v", got, err, from.Public(), stamp)
		}
	})
}

// fixedKey returns the same key in each run.
func fixedKey(b byte) peer.PrivateKey {
	return peer.PrivateKeyFromBytes([peer.KeySize]byte{1: b})
}

var fixedStamp = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

func TestInspectorRefusesWhatNoDeviceAccepts(t *testing.T) {
	us, from := fixedKey(1), fixedKey(2)
	i, valid := NewInspector(us), makeInitiation(t, from, fixedKey(3), us.Public(), fixedStamp)
	mac := func(m []byte) []byte { // anyone who knows our public key can compute it
		public := us.Public()
		key := hashed([]byte("mac1----"), public[:])
		h, err := blake2s.New128(key[:])
		if err != nil {
			t.Fatal(err)
		}
		h.Write(m[:116])
		copy(m[116:], h.Sum(nil))
		return m
	}
	changed := func(at int) []byte {
		m := append([]byte(nil), valid...)
		m[at] ^= 4
		return m
	}
	zero := append([]byte(nil), valid...)
	clear(zero[8:40]) // A low-order point.
	for name, test := range map[string]struct {
		message []byte
		want    Initiation
		invalid bool
	}{
		"valid":                   {valid, Initiation{true, from.Public(), fixedStamp}, false},
		"another mac2":            {changed(140), Initiation{true, from.Public(), fixedStamp}, false},
		"too short":               {valid[:147], Initiation{}, true},
		"too long":                {append(changed(140), 0), Initiation{}, true},
		"empty":                   {nil, Initiation{}, true},
		"another type":            {changed(0), Initiation{}, true},
		"reserved bytes":          {changed(2), Initiation{}, true},
		"mac1":                    {changed(120), Initiation{}, false},
		"what mac1 is for":        {changed(50), Initiation{}, false},
		"static key, with mac1":   {mac(changed(50)), Initiation{ForUs: true}, true},
		"ephemeral, with mac1":    {mac(changed(10)), Initiation{ForUs: true}, true},
		"timestamp, with mac1":    {mac(changed(90)), Initiation{ForUs: true}, true},
		"no ephemeral, with mac1": {mac(zero), Initiation{ForUs: true}, true},
	} {
		got, err := i.Initiation(test.message)
		if got.ForUs != test.want.ForUs || got.Static != test.want.Static || !got.Stamp.Equal(test.want.Stamp) || errors.Is(err, ErrInitiation) != test.invalid {
			t.Errorf("%s: got %+v, %v, want %+v, an error: %t", name, got, err, test.want, test.invalid)
		}
	}
}

func FuzzInspector(f *testing.F) {
	us, from := fixedKey(1), fixedKey(2)
	i, valid := NewInspector(us), makeInitiation(f, from, fixedKey(3), us.Public(), fixedStamp)
	f.Add(valid)
	f.Add(valid[:100])
	f.Add(append([]byte{2, 0, 0, 0}, make([]byte, 88)...))
	f.Fuzz(func(t *testing.T, m []byte) {
		got, err := i.Initiation(m)
		if err == nil && !got.Static.IsZero() && string(m[:initiationMAC1]) != string(valid[:initiationMAC1]) {
			t.Errorf("%x was taken for an initiation by %s", m, got.Static)
		}
		if i.Response(m) && len(m) != responseSize {
			t.Errorf("%d bytes were taken for a response", len(m))
		}
	})
}

func BenchmarkInspector(b *testing.B) {
	us, from := fixedKey(1), fixedKey(2)
	i := NewInspector(us)
	for name, to := range map[string]peer.PublicKey{"for us": us.Public(), "for another key": from.Public()} {
		m := makeInitiation(b, from, fixedKey(3), to, fixedStamp)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := i.Initiation(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
