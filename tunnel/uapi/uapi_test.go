package uapi_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
)

func ptr[T any](v T) *T { return &v }

func fullConfig() uapi.Config {
	return uapi.Config{
		PrivateKey:   ptr(peer.PrivateKeyFromBytes([32]byte{1})),
		ListenPort:   ptr(uint16(51820)),
		FirewallMark: ptr(uint32(7)),
		ReplacePeers: true,
		Peers: []uapi.PeerConfig{
			{
				PublicKey:         peer.PublicKey{2},
				UpdateOnly:        true,
				PresharedKey:      ptr(peer.PresharedKeyFromBytes([32]byte{3})),
				Endpoint:          "peer:AgAAAA==",
				Keepalive:         ptr(uint16(25)),
				ReplaceAllowedIPs: true,
				AllowedIPs:        []netip.Prefix{netip.MustParsePrefix("fd00::1/128"), netip.MustParsePrefix("10.0.0.0/8")},
			},
			{PublicKey: peer.PublicKey{4}, Remove: true},
		},
	}
}

func fullDevice() uapi.Device {
	return uapi.Device{
		PrivateKey: peer.PrivateKeyFromBytes([32]byte{1}),
		ListenPort: 51820,
		Peers: []uapi.Peer{
			{
				PublicKey:     peer.PublicKey{2},
				PresharedKey:  peer.PresharedKeyFromBytes([32]byte{3}),
				Endpoint:      "[fe80::1%2]:51820",
				LastHandshake: time.Unix(1700000000, 5),
				TxBytes:       1 << 63,
				RxBytes:       9,
				Keepalive:     65535,
				AllowedIPs:    []netip.Prefix{netip.MustParsePrefix("::/0")},
			},
			{PublicKey: peer.PublicKey{4}},
		},
	}
}

var secrets = cmp.Options{
	cmp.Comparer(func(a, b peer.PrivateKey) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b peer.PresharedKey) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestConfigReadsLikeTheProtocol(t *testing.T) {
	got, err := fullConfig().MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"private_key=" + peer.PrivateKeyFromBytes([32]byte{1}).Hex(),
		"listen_port=51820",
		"fwmark=7",
		"replace_peers=true",
		"public_key=02" + strings.Repeat("00", 31),
		"update_only=true",
		"preshared_key=03" + strings.Repeat("00", 31),
		"endpoint=peer:AgAAAA==",
		"persistent_keepalive_interval=25",
		"replace_allowed_ips=true",
		"allowed_ip=fd00::1/128",
		"allowed_ip=10.0.0.0/8",
		"public_key=04" + strings.Repeat("00", 31),
		"remove=true",
		"",
	}, "\n")
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestParsingUndoesWriting(t *testing.T) {
	text, err := fullConfig().MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	c, err := uapi.ParseConfig(string(text))
	if diff := cmp.Diff(fullConfig(), c, secrets); err != nil || diff != "" {
		t.Errorf("config: %v (-want +got):\n%s", err, diff)
	}
	text, err = fullDevice().MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	d, err := uapi.ParseDevice(string(text))
	if diff := cmp.Diff(fullDevice(), d, secrets); err != nil || diff != "" {
		t.Errorf("device: %v (-want +got):\n%s", err, diff)
	}
}

func TestWriterRefusesWhatTheFormatCannotCarry(t *testing.T) {
	for name, p := range map[string]uapi.PeerConfig{
		"line break in an endpoint": {Endpoint: "192.0.2.1:1\n\nremove=true"},
		"carriage return":           {Endpoint: "192.0.2.1:1\r"},
		"invalid prefix":            {AllowedIPs: []netip.Prefix{{}}},
		"removed and changed":       {Remove: true, Endpoint: "192.0.2.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := uapi.Config{Peers: []uapi.PeerConfig{p}}.MarshalText()
			if !errors.Is(err, uapi.ErrSyntax) || got != nil {
				t.Errorf("got %q, %v, want no text and ErrSyntax", got, err)
			}
		})
	}
}

func TestParserRefusesMalformedText(t *testing.T) {
	peerLine := "public_key=02" + strings.Repeat("00", 31) + "\n"
	for name, text := range map[string]string{
		"no equals sign":          "listen_port\n",
		"unknown device key":      "colour=red\n",
		"unknown peer key":        peerLine + "colour=red\n",
		"device key below a peer": peerLine + "listen_port=1\n",
		"short key":               "public_key=02\n",
		"port out of range":       "listen_port=65536\n",
		"negative keepalive":      peerLine + "persistent_keepalive_interval=-1\n",
		"flag that is not true":   "replace_peers=false\n",
		"bad prefix":              peerLine + "allowed_ip=10.0.0.0/33\n",
		"control character":       peerLine + "endpoint=192.0.2.1:1\r\n",
		"unknown version":         peerLine + "protocol_version=2\n",
		"removed, then changed":   peerLine + "remove=true\nendpoint=192.0.2.1:1\n",
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := uapi.ParseConfig(text); !errors.Is(err, uapi.ErrSyntax) {
				t.Errorf("got %+v, %v, want ErrSyntax", c, err)
			}
		})
	}
}

func TestParserErrorsHoldNoSecret(t *testing.T) {
	secret := strings.Repeat("ab", 33)
	for _, key := range []string{"private_key", "public_key=02" + strings.Repeat("00", 31) + "\npreshared_key"} {
		_, err := uapi.ParseConfig(key + "=" + secret + "\n")
		if err == nil || strings.Contains(err.Error(), "abab") {
			t.Errorf("%s: got error %v, want one without the value", key, err)
		}
	}
}

func TestDeviceRefusalIsAnError(t *testing.T) {
	if _, err := uapi.ParseDevice("errno=0\n\n"); err != nil {
		t.Errorf("errno=0: got %v, want nil", err)
	}
	if _, err := uapi.ParseDevice("errno=22\n\n"); err == nil {
		t.Error("errno=22: got no error")
	}
}

func TestNewerDeviceMayReportMore(t *testing.T) {
	text := fmt.Sprintf("listen_port=1\nnovelty=1\npublic_key=%064x\nnovelty=2\nrx_bytes=3\n", 5)
	d, err := uapi.ParseDevice(text)
	if err != nil || d.ListenPort != 1 || len(d.Peers) != 1 || d.Peers[0].RxBytes != 3 {
		t.Errorf("got %+v, %v, want the known keys read", d, err)
	}
}
