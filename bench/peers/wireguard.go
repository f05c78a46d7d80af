package main

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"strings"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

const (
	// servicePort is the overlay port that receives the load, TCP and UDP.
	servicePort = 5201
	// defaultMTU is the default of WireGuard's tools, which postern's subjects use, too.
	defaultMTU = 1420
	// overhead is what WireGuard adds to a packet over IPv6, in bytes: IPv6 40, UDP 8, header 16,
	// tag 16. The tools subtract it from the link's MTU, 1,500.
	overhead = 80
)

// end is a wireguard-go device.
type end struct {
	*device.Device
	key  *ecdh.PrivateKey
	addr netip.Addr // in the overlay
}

// newEnd starts a device with a new key, on a free UDP port, without peers. It takes ownership of
// the TUN device.
func newEnd(t tun.Device, bind conn.Bind, addr netip.Addr) (*end, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	e := &end{Device: device.NewDevice(t, bind, logger()), key: key, addr: addr}
	if err := e.IpcSet(fmt.Sprintf("private_key=%s\n", hex.EncodeToString(key.Bytes()))); err != nil {
		return nil, fmt.Errorf("set key: %w", err)
	}
	if err := e.Up(); err != nil {
		return nil, fmt.Errorf("bring device up: %w", err)
	}
	return e, nil
}

func newKey() (*ecdh.PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

// logger writes errors to standard error. device.NewLogger writes to standard output, which is
// for the result.
func logger() *device.Logger {
	return &device.Logger{Verbosef: device.DiscardLogf, Errorf: log.New(os.Stderr, "wireguard: ", 0).Printf}
}

// connect makes other the only peer, at a fixed address. If first, the end sends a packet at
// once, from which the other learns its address.
func (e *end) connect(other *end, at netip.AddrPort, first bool) error {
	keepalive := 0
	if first {
		keepalive = 25
	}
	if err := e.IpcSet(peerLines(other.key.PublicKey(), at, other.addr, keepalive)); err != nil {
		return fmt.Errorf("add peer: %w", err)
	}
	return nil
}

// peerLines describes a peer at a fixed address in WireGuard's cross-platform configuration
// protocol, with its one overlay address and the keepalive interval in seconds, 0 for none.
func peerLines(key *ecdh.PublicKey, at netip.AddrPort, overlay netip.Addr, keepalive int) string {
	return fmt.Sprintf("public_key=%s\nendpoint=%s\nallowed_ip=%s\npersistent_keepalive_interval=%d\n",
		hex.EncodeToString(key.Bytes()), at, netip.PrefixFrom(overlay, overlay.BitLen()), keepalive)
}

// connectBoth makes two ends each other's peer: at their own addresses, or through the forwarder
// at via if that is set. A forwarder must hear from both ends before it can forward, so then both
// speak.
func connectBoth(ends [2]*end, at [2]netip.AddrPort, via string) error {
	if via != "" {
		forwarder, err := netip.ParseAddrPort(via)
		if err != nil {
			return fmt.Errorf("forwarder's address: %w", err)
		}
		at = [2]netip.AddrPort{forwarder, forwarder}
	}
	for i, e := range ends {
		if err := e.connect(ends[1-i], at[1-i], via != ""); err != nil {
			return err
		}
	}
	return nil
}

// port returns the UDP port that the system gave the device.
func (e *end) port() (uint16, error) {
	state, err := e.IpcGet()
	if err != nil {
		return 0, fmt.Errorf("read device state: %w", err)
	}
	for line := range strings.Lines(state) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "listen_port="); ok {
			var port uint16
			if _, err := fmt.Sscan(text, &port); err != nil {
				return 0, fmt.Errorf("read device state: listen_port %q: %w", text, err)
			}
			return port, nil
		}
	}
	return 0, errors.New("device tells no listen_port")
}
