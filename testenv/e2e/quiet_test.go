//go:build linux && e2e

package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// sentWords describes every packet that leaves a host, each kind once: its protocol, ports and
// destination.
type sentWords struct {
	cancel context.CancelFunc
	done   chan struct{}
	kinds  []string // valid once done is closed
}

// listenToSent captures what a host sends to others on all interfaces (packet(7)), below every
// firewall.
func listenToSent(t *testing.T, host *netlab.Host) *sentWords {
	t.Helper()
	fd := -1
	err := netlab.Do(host.Namespace(), func() (err error) {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &sentWords{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer unix.Close(fd)
		b := make([]byte, 64<<10)
		for ctx.Err() == nil {
			n, from, err := unix.Recvfrom(fd, b, 0)
			link, is := from.(*unix.SockaddrLinklayer)
			if err != nil || !is || link.Pkttype != unix.PACKET_OUTGOING || link.Hatype == unix.ARPHRD_LOOPBACK {
				continue
			}
			if kind := packetKind(link.Protocol, b[:n]); kind != "" && !slices.Contains(c.kinds, kind) {
				c.kinds = append(c.kinds, kind)
			}
		}
	}()
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *sentWords) stop() []string {
	c.cancel()
	<-c.done
	return c.kinds
}

// packetKind describes a packet; empty for what the kernel itself sends to find its neighbours:
// ARP, and ICMPv6's neighbour discovery and group reports (RFC 4861, 3810).
func packetKind(protocol uint16, b []byte) string {
	var proto byte
	var dst netip.Addr
	var header int
	switch {
	case protocol == unix.ETH_P_IP<<8&0xff00|unix.ETH_P_IP>>8 && len(b) >= 20:
		proto, dst, header = b[9], netip.AddrFrom4([4]byte(b[16:20])), int(b[0]&15)*4
	case protocol == unix.ETH_P_IPV6<<8&0xff00|unix.ETH_P_IPV6>>8 && len(b) >= 40:
		proto, dst, header = b[6], netip.AddrFrom16([16]byte(b[24:40])), 40
	default:
		return ""
	}
	switch {
	case proto == unix.IPPROTO_ICMPV6 || protocol != unix.ETH_P_IP<<8&0xff00|unix.ETH_P_IP>>8 && proto == unix.IPPROTO_HOPOPTS:
		return ""
	case len(b) < header+4:
		return fmt.Sprintf("protocol %d to %s", proto, dst)
	case proto == unix.IPPROTO_UDP || proto == unix.IPPROTO_TCP:
		return fmt.Sprintf("%s from port %d to %s", map[byte]string{unix.IPPROTO_UDP: "UDP", unix.IPPROTO_TCP: "TCP"}[proto],
			binary.BigEndian.Uint16(b[header:]), netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[header+2:])))
	}
	return fmt.Sprintf("protocol %d to %s", proto, dst)
}

// quietFor is longer than the delay of the first query of any discovery method: multicast DNS
// queries within a second, port mapping at once and again after 9 s.
const quietFor = 12 * time.Second

// TestAPlainGatewaySpeaksToPeersAlone captures all that two gateways send that only know each
// other: no DNS, no PCP, NAT-PMP or SSDP, no multicast of any kind. A gateway that is configured
// to does send queries, which shows that the capture sees them.
func TestAPlainGatewaySpeaksToPeersAlone(t *testing.T) {
	t.Parallel()
	lab := netlab.New(t)
	wan := lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	host := func(name, addr string) *netlab.Host {
		h := lab.Host(name)
		h.Attach("eth0", wan, netip.MustParseAddr(addr))
		h.DefaultRoute(netip.MustParseAddr("198.51.100.1"))
		return h
	}
	const cloudAt, edgeAt, server = "198.51.100.10", "198.51.100.20", "198.51.100.53"
	sent := map[string]*sentWords{}
	start := func(name, addr string, configure ...func(*api.GatewaySpec)) *gateway {
		h := host(name, addr)
		sent[name] = listenToSent(t, h)
		return newGateway(t, h, name, configure...).start()
	}
	host("router", "198.51.100.1")
	host("server", server)
	cloud, edge := start("cloud", cloudAt), start("edge", edgeAt)
	told := start("told", "198.51.100.30", askRouter, func(spec *api.GatewaySpec) {
		spec.Discovery.DNS = api.DNS{Domains: []string{dnsDomain}, Servers: []string{server}}
	})
	enrol(cloud, edge, nil, nil)
	began := time.Now()
	eventually(within(t, patience), t, "time has passed", func() (bool, string) {
		for _, g := range []*gateway{cloud, edge, told} {
			g.must("status")
		}
		return time.Since(began) > quietFor, time.Since(began).String()
	})
	for name, peer := range map[string]string{"cloud": edgeAt, "edge": cloudAt} {
		kinds := sent[name].stop()
		if len(kinds) == 0 {
			t.Errorf("nothing was captured at %s", name)
		}
		for _, kind := range kinds {
			// The kernel rejects senders to the port of the join, which is closed after it.
			if kind == "protocol 1 to "+peer {
				continue
			}
			var from uint16
			var to string
			if n, err := fmt.Sscanf(kind, "UDP from port %d to %s", &from, &to); n != 2 || err != nil || netip.MustParseAddrPort(to).Addr().String() != peer {
				t.Errorf("%s, which knows nobody but its peer at %s, sent %s", name, peer, kind)
			}
		}
	}
	kinds := sent["told"].stop()
	for _, want := range []string{"to " + server + ":53", "to 239.255.255.250:1900"} {
		if !slices.ContainsFunc(kinds, func(k string) bool { return containsAll(k, want) }) {
			t.Errorf("the one that is told to has sent %q, want something %s", kinds, want)
		}
	}
}
