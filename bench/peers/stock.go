package main

import (
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"github.com/postern-dev/postern/bench/peers/load"
)

// stockMTU is what WireGuard's tools set and what the gateway uses.
const stockMTU = 1420

// newStock is wireguard-go as programs embed it (wireproxy and others do): its own network
// stack tun/netstack, its own bind, no setting changed but the MTU where one is asked for.
// Two devices are connected over the loopback interface.
func newStock(_ context.Context, spec load.Spec) (load.Ends, error) {
	const service = 5201
	var (
		addrs = [2]netip.Addr{netip.MustParseAddr("fd00::a"), netip.MustParseAddr("fd00::b")}
		keys  [2]*ecdh.PrivateKey
		devs  [2]*device.Device
		nets  [2]*netstack.Net
		ports [2]string
	)
	for i := range devs {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return load.Ends{}, fmt.Errorf("make key: %w", err)
		}
		keys[i] = key
		tun, net, err := netstack.CreateNetTUN([]netip.Addr{addrs[i]}, nil, cmp.Or(spec.MTU, stockMTU))
		if err != nil {
			return load.Ends{}, fmt.Errorf("make network stack: %w", err)
		}
		nets[i] = net
		devs[i] = device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
		if err := devs[i].IpcSet(fmt.Sprintf("private_key=%s\n", hex.EncodeToString(key.Bytes()))); err != nil {
			return load.Ends{}, fmt.Errorf("set key: %w", err)
		}
		if err := devs[i].Up(); err != nil {
			return load.Ends{}, fmt.Errorf("bring device up: %w", err)
		}
		if ports[i], err = listenPort(devs[i]); err != nil {
			return load.Ends{}, err
		}
	}
	for i := range devs {
		other := 1 - i
		err := devs[i].IpcSet(fmt.Sprintf("public_key=%s\nendpoint=127.0.0.1:%s\nallowed_ip=%s/128\n",
			hex.EncodeToString(keys[other].PublicKey().Bytes()), ports[other], addrs[other]))
		if err != nil {
			return load.Ends{}, fmt.Errorf("add peer: %w", err)
		}
	}
	target := netip.AddrPortFrom(addrs[1], service)
	listener, err := nets[1].ListenTCPAddrPort(target)
	if err != nil {
		return load.Ends{}, fmt.Errorf("listen on %s: %w", target, err)
	}
	return load.Ends{
		Listener: listener,
		Dial: func(ctx context.Context) (net.Conn, error) {
			return nets[0].DialContextTCPAddrPort(ctx, target)
		},
		ListenPacket: func() (net.PacketConn, error) { return nets[1].ListenUDPAddrPort(target) },
		DialPacket: func(context.Context) (net.Conn, error) {
			return nets[0].DialUDPAddrPort(netip.AddrPort{}, target)
		},
		// The devices end with the process: netTun.Close closes a channel that its
		// stack still sends to, which panics now and then after a bulk transfer.
	}, nil
}

// listenPort asks the device which UDP port the system gave it.
func listenPort(d *device.Device) (string, error) {
	state, err := d.IpcGet()
	if err != nil {
		return "", fmt.Errorf("read device state: %w", err)
	}
	for line := range strings.Lines(state) {
		if port, ok := strings.CutPrefix(strings.TrimSpace(line), "listen_port="); ok {
			return port, nil
		}
	}
	return "", errors.New("device tells no listen_port")
}
