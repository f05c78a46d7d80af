package dnssd

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	textVersion = "1"
	// maxText limits a TXT record in bytes. By RFC 6763 §6.2 400 bytes should fit into a
	// message, and more than 1300 are not recommended.
	maxText = 1024
	// maxCapabilities and maxCapability limit what is accepted from others.
	maxCapabilities = 16
	maxCapability   = 32
)

// text is the content of a gateway's TXT record.
type text struct {
	key          peer.PublicKey
	capabilities []string
}

// parseText parses a TXT record. The errors are for the operators who may have written it.
func parseText(list []string) (text, error) {
	size := 0
	values := map[string]string{}
	for _, s := range list {
		size += 1 + len(s)
		key, value, _ := strings.Cut(s, "=")
		key = strings.ToLower(key)
		if _, again := values[key]; !again {
			values[key] = value
		}
	}
	var t text
	if size > maxText {
		return t, fmt.Errorf("has %d bytes, and at most %d are read", size, maxText)
	}
	version, known := values["v"]
	switch major, _, _ := strings.Cut(version, "."); {
	case !known:
		return t, errors.New("has no version (v=1)")
	case major != textVersion:
		return t, fmt.Errorf("has version %.16q, and this gateway understands %s", version, textVersion)
	}
	pk, known := values["pk"]
	if !known {
		return t, errors.New("has no public key (pk=)")
	}
	key, err := peer.ParsePublicKey(pk)
	if err != nil || key.IsZero() {
		return t, fmt.Errorf("has a public key that is none: pk=%.64q", pk)
	}
	t.key = key
	if ov, given := values["ov"]; given {
		if a, err := netip.ParseAddr(ov); err != nil || a != peer.OverlayAddr(key) {
			return t, fmt.Errorf("has an overlay address that is not that of its key: ov=%.64q", ov)
		}
	}
	for c := range strings.SplitSeq(values["caps"], ",") {
		if c != "" && len(c) <= maxCapability && len(t.capabilities) < maxCapabilities {
			t.capabilities = append(t.capabilities, c)
		}
	}
	return t, nil
}

// writeText returns a TXT record's strings.
func writeText(key peer.PublicKey, capabilities []string) []string {
	out := []string{"v=" + textVersion, "pk=" + key.String(), "ov=" + peer.OverlayAddr(key).String()}
	if len(capabilities) > 0 {
		out = append(out, "caps="+strings.Join(capabilities, ","))
	}
	return out
}
