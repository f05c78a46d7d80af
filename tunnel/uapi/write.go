package uapi

import (
	"fmt"
	"net/netip"
	"strconv"
)

// MarshalText writes the message. It fails for values that the format cannot represent: a control
// character in an endpoint, an invalid prefix, a removal that also sets something.
func (c Config) MarshalText() ([]byte, error) {
	var w writer
	if c.PrivateKey != nil {
		w.line("private_key", c.PrivateKey.Hex())
	}
	if c.ListenPort != nil {
		w.number("listen_port", uint64(*c.ListenPort))
	}
	if c.FirewallMark != nil {
		w.number("fwmark", uint64(*c.FirewallMark))
	}
	w.flag("replace_peers", c.ReplacePeers)
	for _, p := range c.Peers {
		w.peerConfig(p)
	}
	return w.buf, w.err
}

// MarshalText writes the state in the format of a device's answer.
func (d Device) MarshalText() ([]byte, error) {
	var w writer
	if !d.PrivateKey.IsZero() {
		w.line("private_key", d.PrivateKey.Hex())
	}
	if d.ListenPort != 0 {
		w.number("listen_port", uint64(d.ListenPort))
	}
	if d.FirewallMark != 0 {
		w.number("fwmark", uint64(d.FirewallMark))
	}
	for _, p := range d.Peers {
		w.peer(p)
	}
	return w.buf, w.err
}

// writer appends lines and keeps the first error.
type writer struct {
	buf []byte
	err error
}

func (w *writer) peerConfig(p PeerConfig) {
	w.line("public_key", p.PublicKey.Hex())
	w.flag("update_only", p.UpdateOnly)
	if p.Remove {
		if p.PresharedKey != nil || p.Endpoint != "" || p.Keepalive != nil || p.ReplaceAllowedIPs || len(p.AllowedIPs) > 0 {
			w.fail("peer %s is removed and changed at once", p.PublicKey)
		}
		w.flag("remove", true)
		return
	}
	if p.PresharedKey != nil {
		w.line("preshared_key", p.PresharedKey.Hex())
	}
	if p.Endpoint != "" {
		w.line("endpoint", p.Endpoint)
	}
	if p.Keepalive != nil {
		w.number("persistent_keepalive_interval", uint64(*p.Keepalive))
	}
	w.flag("replace_allowed_ips", p.ReplaceAllowedIPs)
	w.prefixes(p.AllowedIPs)
}

func (w *writer) peer(p Peer) {
	w.line("public_key", p.PublicKey.Hex())
	w.line("preshared_key", p.PresharedKey.Hex())
	w.number("protocol_version", 1)
	if p.Endpoint != "" {
		w.line("endpoint", p.Endpoint)
	}
	var sec, nsec int64
	if !p.LastHandshake.IsZero() {
		sec, nsec = p.LastHandshake.Unix(), int64(p.LastHandshake.Nanosecond())
	}
	if sec < 0 {
		w.fail("handshake of peer %s before 1970", p.PublicKey)
		return
	}
	w.number("last_handshake_time_sec", uint64(sec))
	w.number("last_handshake_time_nsec", uint64(nsec))
	w.number("tx_bytes", p.TxBytes)
	w.number("rx_bytes", p.RxBytes)
	w.number("persistent_keepalive_interval", uint64(p.Keepalive))
	w.prefixes(p.AllowedIPs)
}

func (w *writer) prefixes(ps []netip.Prefix) {
	for _, p := range ps {
		if !p.IsValid() {
			w.fail("allowed_ip is not a prefix")
			return
		}
		w.line("allowed_ip", p.String())
	}
}

func (w *writer) flag(key string, on bool) {
	if on {
		w.line(key, "true")
	}
}

func (w *writer) number(key string, v uint64) { w.line(key, strconv.FormatUint(v, 10)) }

func (w *writer) line(key, value string) {
	if w.err != nil {
		return
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] == 0x7f {
			w.fail("%s holds the control character %#x", key, value[i])
			return
		}
	}
	w.buf = append(w.buf, key...)
	w.buf = append(w.buf, '=')
	w.buf = append(w.buf, value...)
	w.buf = append(w.buf, '\n')
}

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: "+format, append([]any{ErrSyntax}, args...)...)
		w.buf = nil
	}
}
