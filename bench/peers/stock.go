package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"github.com/postern-dev/postern/bench/peers/load"
)

// newStock is wireguard-go as programs such as wireproxy embed it: with its own network stack
// tun/netstack and its own bind, and default settings except for the MTU if requested. Two
// devices are connected over the loopback interface.
func newStock(_ context.Context, spec load.Spec) (load.Ends, error) {
	var (
		addrs = [2]netip.Addr{netip.MustParseAddr("fd00::a"), netip.MustParseAddr("fd00::b")}
		ends  [2]*end
		nets  [2]*netstack.Net
		at    [2]netip.AddrPort
	)
	for i, addr := range addrs {
		tun, net, err := netstack.CreateNetTUN([]netip.Addr{addr}, nil, cmp.Or(spec.MTU, defaultMTU))
		if err != nil {
			return load.Ends{}, fmt.Errorf("make network stack: %w", err)
		}
		nets[i] = net
		if ends[i], err = newEnd(tun, conn.NewDefaultBind(), addr); err != nil {
			return load.Ends{}, err
		}
		port, err := ends[i].port()
		if err != nil {
			return load.Ends{}, err
		}
		at[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	}
	if err := connectBoth(ends, at, spec.Via); err != nil {
		return load.Ends{}, err
	}
	target := netip.AddrPortFrom(addrs[1], servicePort)
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
		// The devices end with the process: netTun.Close closes a channel to which its stack
		// still sends, which sometimes panics after a bulk transfer.
	}, nil
}
