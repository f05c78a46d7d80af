package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/bench/peers/load"
)

// The names of interfaces. TUN devices differ between the two namespaces, since
// wireguard-go takes names for unique on a machine; the ends of a veth pair do too, since
// it is born in one of them.
var (
	tunNames  = [2]string{"wg-dialling", "wg-serving"}
	vethNames = [2]string{"veth-dialling", "veth-serving"}
	// Both networks are the namespaces' own, so any addresses will do.
	overlayAddrs  = [2]netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}
	underlayAddrs = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
)

// prefixBits is the length of both networks' prefix.
const prefixBits = 24

// site is one end with the kernel that it belongs to.
type site struct {
	*namespace
	end *end
}

// sites are the two.
type sites struct {
	both  [2]*site
	began time.Time // When there were machines to start wireguard-go on.
}

// newTUN is wireguard-go as wg-quick starts it where the kernel has no WireGuard: on a TUN
// device, under the kernel's own TCP; two of them, each in a network namespace of its own.
// A veth pair joins the namespaces. By way of a forwarder, spec.Via, there is none: the
// devices' sockets are then where the forwarder is, in the namespace of the process.
func newTUN(_ context.Context, spec load.Spec) (load.Ends, error) {
	s := new(sites)
	if err := s.start(spec); err != nil {
		return load.Ends{}, errors.Join(err, s.close())
	}
	dialling, serving := s.both[0], s.both[1]
	at := netip.AddrPortFrom(overlayAddrs[1], servicePort).String()
	listener, err := serving.listen(at)
	if err != nil {
		return load.Ends{}, errors.Join(err, s.close())
	}
	return load.Ends{
		Listener:     listener,
		Dial:         func(ctx context.Context) (net.Conn, error) { return dialling.dial(ctx, "tcp", at) },
		ListenPacket: func() (net.PacketConn, error) { return serving.listenPacket(at) },
		DialPacket:   func(ctx context.Context) (net.Conn, error) { return dialling.dial(ctx, "udp", at) },
		Close:        s.close,
		Began:        s.began,
	}, nil
}

func (s *sites) start(spec load.Spec) error {
	mtu := cmp.Or(spec.MTU, defaultMTU)
	for i := range s.both {
		ns, err := newNamespace()
		if err != nil {
			return err
		}
		s.both[i] = &site{namespace: ns}
	}
	if spec.Via == "" {
		if err := s.join(mtu + overhead); err != nil {
			return err
		}
	}
	s.began = time.Now()
	var (
		ends [2]*end
		at   [2]netip.AddrPort
	)
	for i, one := range s.both {
		if err := one.start(i, mtu, spec.Via == ""); err != nil {
			return err
		}
		port, err := one.end.port()
		if err != nil {
			return err
		}
		ends[i], at[i] = one.end, netip.AddrPortFrom(underlayAddrs[i], port)
	}
	return connectBoth(ends, at, spec.Via)
}

// join lays a veth pair between the namespaces.
func (s *sites) join(mtu int) (err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = vethNames[0], mtu
	s.both[0].in(func() {
		err = netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: vethNames[1], PeerMTU: uint32(mtu),
			PeerNamespace: netlink.NsFd(s.both[1].file.Fd()),
		})
	})
	if err != nil {
		return fmt.Errorf("make veth pair: %w", err)
	}
	for i, one := range s.both {
		if err := one.setUp(vethNames[i], underlayAddrs[i]); err != nil {
			return err
		}
	}
	return nil
}

// start makes the TUN device and wireguard-go on it. Its socket is in the namespace if
// inside.
func (s *site) start(i, mtu int, inside bool) (err error) {
	var t tun.Device
	s.in(func() { t, err = tun.CreateTUN(tunNames[i], mtu) })
	if err != nil {
		return fmt.Errorf("make TUN device (needs root and /dev/net/tun): %w", err)
	}
	bind := conn.NewDefaultBind()
	if inside {
		bind = insideBind{bind, s.namespace}
	}
	if s.end, err = newEnd(fixedMTU{t, mtu}, bind, overlayAddrs[i]); err != nil {
		return errors.Join(err, t.Close())
	}
	return s.setUp(tunNames[i], overlayAddrs[i])
}

// setUp gives an interface its address and sets it up.
func (s *site) setUp(name string, addr netip.Addr) (err error) {
	s.in(func() {
		var link netlink.Link
		if link, err = netlink.LinkByName(name); err != nil {
			return
		}
		network := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(prefixBits, addr.BitLen())}
		if err = netlink.AddrAdd(link, &netlink.Addr{IPNet: network}); err == nil {
			err = netlink.LinkSetUp(link)
		}
	})
	if err != nil {
		return fmt.Errorf("set up %s with %s: %w", name, addr, err)
	}
	return nil
}

func (s *site) listen(at string) (l net.Listener, err error) {
	var lc net.ListenConfig
	s.in(func() { l, err = lc.Listen(context.Background(), "tcp", at) })
	return l, err
}

func (s *site) listenPacket(at string) (pc net.PacketConn, err error) {
	var lc net.ListenConfig
	s.in(func() { pc, err = lc.ListenPacket(context.Background(), "udp", at) })
	return pc, err
}

func (s *site) dial(ctx context.Context, network, at string) (c net.Conn, err error) {
	var d net.Dialer
	s.in(func() { c, err = d.DialContext(ctx, network, at) })
	return c, err
}

// close ends the devices and lets go of the namespaces.
func (s *sites) close() error {
	var errs []error
	for _, one := range s.both {
		if one == nil {
			continue
		}
		if one.end != nil {
			one.end.Close()
		}
		errs = append(errs, one.close())
	}
	return errors.Join(errs...)
}

// insideBind is a bind whose sockets are in a namespace. The device opens them when it
// comes up, from whichever goroutine notices that.
type insideBind struct {
	conn.Bind
	ns *namespace
}

func (b insideBind) Open(port uint16) (receive []conn.ReceiveFunc, actual uint16, err error) {
	b.ns.in(func() { receive, actual, err = b.Bind.Open(port) })
	return receive, actual, err
}

// fixedMTU is a TUN device that knows its MTU. tun's own asks the kernel for an interface
// of its name, from a thread that is in another namespace.
type fixedMTU struct {
	tun.Device
	mtu int
}

func (t fixedMTU) MTU() (int, error) { return t.mtu, nil }
