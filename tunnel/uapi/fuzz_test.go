package uapi_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
)

// FuzzParse feeds hostile text to both parsers. What they accept must survive writing and reading
// again, and must not contain a blank line.
func FuzzParse(f *testing.F) {
	c, err := fullConfig().MarshalText()
	if err != nil {
		f.Fatal(err)
	}
	d, err := fullDevice().MarshalText()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(c))
	f.Add(string(d))
	f.Add("listen_port=1\n\nlisten_port=2\n")
	f.Add("private_key=0000000000000000000000000000000000000000000000000000000000000000\n")
	f.Add("errno=-5\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := uapi.ParseConfig(text); err == nil {
			again, err := uapi.ParseConfig(rewritten(t, c))
			if diff := cmp.Diff(c, again, secrets, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("config changed: %v\n%s", err, diff)
			}
		}
		if d, err := uapi.ParseDevice(text); err == nil {
			again, err := uapi.ParseDevice(rewritten(t, d))
			if diff := cmp.Diff(d, again, secrets, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("device changed: %v\n%s", err, diff)
			}
		}
	})
}

func rewritten(t *testing.T, m interface{ MarshalText() ([]byte, error) }) string {
	t.Helper()
	text, err := m.MarshalText()
	if err != nil {
		t.Fatalf("what was parsed cannot be written: %v", err)
	}
	if bytes.HasPrefix(text, []byte("\n")) || bytes.Contains(text, []byte("\n\n")) {
		t.Fatalf("blank line in %q", text)
	}
	return string(text)
}

// FuzzRoundTrip writes arbitrary values and reads them back.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("key"), "192.0.2.1:51820", uint16(25), []byte{10, 0, 0, 1}, uint8(32), true)
	f.Add([]byte{}, "peer:x\ny", uint16(0), make([]byte, 16), uint8(128), false)
	f.Fuzz(func(t *testing.T, key []byte, endpoint string, keepalive uint16, ip []byte, bits uint8, flag bool) {
		var k [32]byte
		copy(k[:], key)
		in := uapi.Config{
			ListenPort: &keepalive, ReplacePeers: flag,
			Peers: []uapi.PeerConfig{{
				PublicKey: peer.PublicKey(k), PresharedKey: ptr(peer.PresharedKeyFromBytes(k)), UpdateOnly: flag,
				Endpoint: endpoint, Keepalive: &keepalive, ReplaceAllowedIPs: !flag,
			}},
		}
		if a, ok := netip.AddrFromSlice(ip); ok {
			in.Peers[0].AllowedIPs = []netip.Prefix{netip.PrefixFrom(a, int(bits))}
		}
		text, err := in.MarshalText()
		if err != nil {
			return
		}
		out, err := uapi.ParseConfig(string(text))
		if diff := cmp.Diff(in, out, secrets); err != nil || diff != "" {
			t.Errorf("config changed: %v\n%s\n%s", err, diff, text)
		}
	})
}
