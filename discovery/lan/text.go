package lan

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	textVersion = "1"
	// maxCapabilities and maxCapability limit what is accepted from others.
	maxCapabilities = 16
	maxCapability   = 32
)

// Proof proves that the holder of a public key, under a name, is a member of the LAN group with
// the secret. See the package documentation.
func Proof(secret peer.PresharedKey, key peer.PublicKey, name string) []byte {
	h := hmac.New(sha256.New, []byte(secret.Base64()))
	h.Write([]byte("postern lan v1\x00"))
	h.Write(key[:])
	h.Write([]byte(name))
	return h.Sum(nil)
}

// text is the content of a gateway's TXT record.
type text struct {
	key          peer.PublicKey
	overlay      netip.Addr
	capabilities []string
	proof        []byte // nil = none
}

// strings returns the record's strings.
func (t text) strings() []string {
	out := []string{"v=" + textVersion, "pk=" + t.key.String(), "ov=" + t.overlay.String()}
	if len(t.capabilities) > 0 {
		out = append(out, "caps="+strings.Join(t.capabilities, ","))
	}
	if t.proof != nil {
		out = append(out, "pr="+base64.StdEncoding.EncodeToString(t.proof))
	}
	return out
}

// parseText parses a TXT record. The errors are for the operators who may have written it.
func parseText(list []string) (text, error) {
	values := map[string]string{}
	for _, s := range list {
		key, value, _ := strings.Cut(s, "=")
		key = strings.ToLower(key)
		if _, again := values[key]; !again {
			values[key] = value
		}
	}
	var t text
	version, known := values["v"]
	switch major, _, _ := strings.Cut(version, "."); {
	case !known:
		return t, errors.New("its TXT record has no version (v=1)")
	case major != textVersion:
		return t, fmt.Errorf("its TXT record has version %.16q, and this gateway understands %s", version, textVersion)
	}
	pk, known := values["pk"]
	if !known {
		return t, errors.New("its TXT record has no public key (pk=)")
	}
	key, err := peer.ParsePublicKey(pk)
	if err != nil || key.IsZero() {
		return t, fmt.Errorf("the public key in its TXT record is none: pk=%.64q", pk)
	}
	t.key, t.overlay = key, peer.OverlayAddr(key)
	if ov, given := values["ov"]; given {
		if a, err := netip.ParseAddr(ov); err != nil || a != t.overlay {
			return t, fmt.Errorf("its overlay address ov=%.64q is not that of its key, %s", ov, t.overlay)
		}
	}
	t.capabilities = capabilities(values["caps"])
	if pr := values["pr"]; len(pr) == base64.StdEncoding.EncodedLen(sha256.Size) {
		if t.proof, err = base64.StdEncoding.DecodeString(pr); err != nil {
			t.proof = nil
		}
	}
	return t, nil
}

// capabilities parses a list, and leaves out invalid entries.
func capabilities(list string) []string {
	var out []string
	for c := range strings.SplitSeq(list, ",") {
		if len(out) < maxCapabilities && isCapability(c) && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

func isCapability(s string) bool {
	return s != "" && len(s) <= maxCapability && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) < 0
}

// proves reports whether a text contains the proof for a group's secret, under a name.
func (t text) proves(secret peer.PresharedKey, name string) bool {
	return !secret.IsZero() && t.proof != nil && hmac.Equal(t.proof, Proof(secret, t.key, name))
}
