package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/postern-dev/postern/bench/peers/load"
)

// Names of interfaces. The two TUN devices have different names, because wireguard-go requires
// names that are unique on the machine. So do the ends of a veth pair, because both are created
// in the same namespace.
var (
	tunNames  = [2]string{"wg-dialling", "wg-serving"}
	vethNames = [2]string{"veth-dialling", "veth-serving"}
	// Both networks only exist in the namespaces, so any addresses will do.
	overlayAddrs  = [2]netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}
	underlayAddrs = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
)

// prefixBits is the prefix length of both networks.
const prefixBits = 24

// site is one end with its kernel's network stack.
type site struct {
	*namespace
	congestion congestionControl // for its TCP connections
}

// sites are the two ends.
type sites [2]site

func newSites() (s sites, err error) {
	for i := range s {
		if s[i].namespace, err = newNamespace(); err != nil {
			return sites{}, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// join connects the sites by a veth pair that carries packets of an overlay with that MTU without
// fragmentation.
func (s sites) join(overlayMTU int) (err error) {
	attrs, mtu := netlink.NewLinkAttrs(), overlayMTU+overhead
	attrs.Name, attrs.MTU = vethNames[0], mtu
	s[0].in(func() {
		err = netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: vethNames[1], PeerMTU: uint32(mtu),
			PeerNamespace: netlink.NsFd(s[1].file.Fd()),
		})
	})
	if err != nil {
		return fmt.Errorf("make veth pair: %w", err)
	}
	for i, one := range s {
		if err := one.setUp(vethNames[i], underlayAddrs[i], mtu); err != nil {
			return err
		}
	}
	return nil
}

// setUp sets an interface's address and MTU, and brings it up.
func (s site) setUp(name string, addr netip.Addr, mtu int) (err error) {
	s.in(func() {
		var link netlink.Link
		if link, err = netlink.LinkByName(name); err != nil {
			return
		}
		if link.Attrs().MTU != mtu {
			if err = netlink.LinkSetMTU(link, mtu); err != nil {
				return
			}
		}
		network := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(prefixBits, addr.BitLen())}
		if err = netlink.AddrAdd(link, &netlink.Addr{IPNet: network}); err == nil {
			err = netlink.LinkSetUp(link)
		}
	})
	if err != nil {
		return fmt.Errorf("set up %s with %s and MTU %d: %w", name, addr, mtu, err)
	}
	return nil
}

// ends uses the kernels' TCP and UDP over the overlay.
func (s sites) ends() (load.Ends, error) {
	dialling, serving := s[0], s[1]
	at := netip.AddrPortFrom(overlayAddrs[1], servicePort).String()
	listener, err := serving.listen(at)
	if err != nil {
		return load.Ends{}, err
	}
	return load.Ends{
		Listener:     listener,
		Dial:         func(ctx context.Context) (net.Conn, error) { return dialling.dial(ctx, "tcp", at) },
		ListenPacket: func() (net.PacketConn, error) { return serving.listenPacket(at) },
		DialPacket:   func(ctx context.Context) (net.Conn, error) { return dialling.dial(ctx, "udp", at) },
	}, nil
}

func (s site) listen(at string) (l net.Listener, err error) {
	lc := net.ListenConfig{Control: s.congestion.set}
	s.in(func() { l, err = lc.Listen(context.Background(), "tcp", at) })
	return l, err
}

func (s site) listenPacket(at string) (pc net.PacketConn, err error) {
	var lc net.ListenConfig
	s.in(func() { pc, err = lc.ListenPacket(context.Background(), "udp", at) })
	return pc, err
}

func (s site) dial(ctx context.Context, network, at string) (c net.Conn, err error) {
	d := net.Dialer{Control: s.congestion.set}
	s.in(func() { c, err = d.DialContext(ctx, network, at) })
	return c, err
}

// close releases the namespaces that were created.
func (s sites) close() error {
	var errs []error
	for _, one := range s {
		if one.namespace != nil {
			errs = append(errs, one.close())
		}
	}
	return errors.Join(errs...)
}
