package peer

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
)

// The scalar and its public key are Alice's of RFC 7748 §6.1.
const (
	alicePrivate = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
	alicePublic  = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
	// Computed independently with Python's hashlib.blake2s.
	aliceOverlay = "fdfc:b48b:b521:208f:109d:b004:c59a:57a9"
)

func TestPublicKeyFollowsRFC7748(t *testing.T) {
	k, err := ParsePrivateKey(alicePrivate)
	if err != nil {
		t.Fatal(err)
	}
	if got := k.Public().String(); got != alicePublic {
		t.Errorf("public key: got %s, want %s", got, alicePublic)
	}
}

func TestOverlayAddressFollowsTheKey(t *testing.T) {
	pub, err := ParsePublicKey(alicePublic)
	if err != nil {
		t.Fatal(err)
	}
	if got := OverlayAddr(pub); got != netip.MustParseAddr(aliceOverlay) {
		t.Errorf("overlay address: got %v, want %v", got, aliceOverlay)
	}
	if !OverlayPrefix.Contains(OverlayAddr(pub)) {
		t.Errorf("overlay address %v is outside %v", OverlayAddr(pub), OverlayPrefix)
	}
	c := Config{PublicKey: pub, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}
	if got := c.Addresses(); len(got) != 1 || got[0].Addr() != OverlayAddr(pub) || got[0].Bits() != 128 {
		t.Errorf("a peer that is not stock may send from %v, want its overlay address alone", got)
	}
}

func TestSecretsPrintNowhere(t *testing.T) {
	priv, err := ParsePrivateKey(alicePrivate)
	if err != nil {
		t.Fatal(err)
	}
	psk, err := ParsePresharedKey(alicePrivate)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+verb, priv, psk)
		fmt.Fprintf(&out, verb+verb, &priv, &psk)
		fmt.Fprintf(&out, verb, Config{PresharedKey: psk})
		fmt.Fprintf(&out, verb, struct{ K PrivateKey }{priv})
	}
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("x", "key", priv, "psk", psk, "config", Config{PresharedKey: psk})
	if err := json.NewEncoder(&out).Encode(map[string]any{"a": priv, "b": psk, "c": Config{PresharedKey: psk}}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{priv.Base64(), priv.Hex(), strings.ToUpper(priv.Hex()), psk.Base64(), psk.Hex(), "119 7 109"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("a secret was printed: %q in %q", secret, out.String())
		}
	}
}

func TestParseRefusesWhatIsNoKey(t *testing.T) {
	for name, s := range map[string]string{
		"empty":             "",
		"short":             "AAAA",
		"hex":               strings.Repeat("ab", 32),
		"trailing newline":  alicePublic + "\n",
		"31 bytes":          "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTg==",
		"non-canonical end": "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmp=",
		"zero":              "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := ParsePublicKey(s); err == nil {
				t.Errorf("ParsePublicKey(%q) = %v, want an error", s, k)
			}
		})
	}
}

func TestFingerprintIsStable(t *testing.T) {
	pub, err := ParsePublicKey(alicePublic)
	if err != nil {
		t.Fatal(err)
	}
	hex := strings.ReplaceAll(netip.MustParseAddr(aliceOverlay).StringExpanded(), ":", "")[2:18]
	if got := strings.ReplaceAll(Fingerprint(pub), "-", ""); got != hex {
		t.Errorf("fingerprint: got %s, want %s", got, hex)
	}
}
