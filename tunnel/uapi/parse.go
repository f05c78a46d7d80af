package uapi

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// ParseDevice parses a "get" answer. Unknown keys are ignored, since a newer device may report
// more. A line errno=N with N other than 0 is an error: the device refused.
func ParseDevice(text string) (Device, error) {
	var d Device
	var p *Peer
	if n := strings.Count(text, "public_key="); n > 0 {
		d.Peers = make([]Peer, 0, n)
	}
	err := eachLine(text, func(key, value string) error {
		switch key {
		case "public_key":
			k, err := parseKey(value)
			if err != nil {
				return err
			}
			d.Peers = append(d.Peers, Peer{PublicKey: peer.PublicKey(k)})
			p = &d.Peers[len(d.Peers)-1]
			return nil
		case "errno":
			if value != "0" {
				return fmt.Errorf("the device refused with error %q", value)
			}
			return nil
		}
		if p == nil {
			return d.set(key, value)
		}
		return p.set(key, value)
	})
	if err != nil {
		return Device{}, err
	}
	return d, nil
}

// eachLine calls f for every line up to the end of the message.
func eachLine(text string, f func(key, value string) error) error {
	for n := 1; text != ""; n++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		if line == "" {
			return nil // a blank line ends the message
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return fmt.Errorf("%w: line %d has no '='", ErrSyntax, n)
		}
		for i := range len(value) {
			if value[i] < ' ' || value[i] == 0x7f {
				return fmt.Errorf("%w: line %d holds a control character", ErrSyntax, n)
			}
		}
		if err := f(key, value); err != nil {
			return fmt.Errorf("%w: line %d, %.40q: %w", ErrSyntax, n, key, err)
		}
	}
	return nil
}

func (d *Device) set(key, value string) error {
	switch key {
	case "private_key":
		k, err := parseKey(value)
		if err == nil && k != [peer.KeySize]byte{} {
			d.PrivateKey = peer.PrivateKeyFromBytes(k)
		}
		return err
	case "listen_port":
		return parseUint(value, 16, &d.ListenPort)
	case "fwmark":
		return parseUint(value, 32, &d.FirewallMark)
	}
	return nil
}

func (p *Peer) set(key, value string) error {
	switch key {
	case "preshared_key":
		k, err := parseKey(value)
		p.PresharedKey = peer.PresharedKeyFromBytes(k)
		return err
	case "protocol_version":
		return parseVersion(value)
	case "endpoint":
		return parseEndpoint(value, &p.Endpoint)
	case "last_handshake_time_sec":
		var sec uint64
		if err := parseUint(value, 40, &sec); err != nil { // 40 bits of seconds reach past the year 36000.
			return err
		}
		p.LastHandshake = handshakeTime(int64(sec), int64(nanosecond(p.LastHandshake)))
		return nil
	case "last_handshake_time_nsec":
		var nsec uint64
		if err := parseUint(value, 30, &nsec); err != nil {
			return err
		}
		if nsec >= uint64(time.Second) {
			return errors.New("not below one second")
		}
		p.LastHandshake = handshakeTime(second(p.LastHandshake), int64(nsec))
		return nil
	case "tx_bytes":
		return parseUint(value, 64, &p.TxBytes)
	case "rx_bytes":
		return parseUint(value, 64, &p.RxBytes)
	case "persistent_keepalive_interval":
		return parseUint(value, 16, &p.Keepalive)
	case "allowed_ip":
		return parsePrefix(value, &p.AllowedIPs)
	}
	return nil
}

// handshakeTime maps the protocol's 0 seconds and 0 nanoseconds to the zero time.
func handshakeTime(sec, nsec int64) time.Time {
	if sec == 0 && nsec == 0 {
		return time.Time{}
	}
	return time.Unix(sec, nsec)
}

func second(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func nanosecond(t time.Time) int {
	if t.IsZero() {
		return 0
	}
	return t.Nanosecond()
}

func parseKey(value string) (k [peer.KeySize]byte, err error) {
	if len(value) != hex.EncodedLen(peer.KeySize) {
		return k, fmt.Errorf("a key has %d hexadecimal digits", hex.EncodedLen(peer.KeySize))
	}
	if _, err := hex.Decode(k[:], []byte(value)); err != nil {
		return [peer.KeySize]byte{}, fmt.Errorf("a key has %d hexadecimal digits", hex.EncodedLen(peer.KeySize))
	}
	return k, nil
}

func parseUint[T uint16 | uint32 | uint64](value string, bits int, out *T) error {
	v, err := strconv.ParseUint(value, 10, bits)
	if err != nil {
		return fmt.Errorf("not a decimal number of at most %d bits", bits)
	}
	*out = T(v)
	return nil
}

func parseVersion(value string) error {
	if value != "1" {
		return errors.New("the only version is 1")
	}
	return nil
}

func parseEndpoint(value string, out *string) error {
	if value == "" {
		return errors.New("empty")
	}
	*out = value
	return nil
}

func parsePrefix(value string, out *[]netip.Prefix) error {
	p, err := netip.ParsePrefix(value)
	if err != nil {
		return errors.New("not an address prefix")
	}
	*out = append(*out, p)
	return nil
}
