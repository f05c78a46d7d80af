package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/bench/peers/load"
)

// devices are two wireguard-go devices in this process, each at its own site.
type devices struct {
	sites
	both [2]*end
}

// newTUN is wireguard-go on TUN devices, with the kernel's TCP: two devices in this process, each
// in its own network namespace. A veth pair connects the namespaces. With a forwarder, spec.Via,
// there is none: the devices' sockets are then in the process's namespace, where the forwarder
// is.
func newTUN(ctx context.Context, spec load.Spec) (load.Ends, error) {
	return newTUNWith("")(ctx, spec)
}

// newTUNWith is newTUN with the given congestion control.
func newTUNWith(name string) load.Subject {
	return func(_ context.Context, spec load.Spec) (load.Ends, error) {
		s, err := newSites()
		if err != nil {
			return load.Ends{}, err
		}
		for i := range s {
			s[i].congestion = congestionControl(name)
		}
		d := &devices{sites: s}
		ends, err := d.start(spec)
		if err != nil {
			return load.Ends{}, errors.Join(err, d.close())
		}
		return ends, nil
	}
}

func (d *devices) start(spec load.Spec) (load.Ends, error) {
	mtu := cmp.Or(spec.MTU, defaultMTU)
	if spec.Via == "" {
		if err := d.join(mtu); err != nil {
			return load.Ends{}, err
		}
	}
	began := time.Now() // the machines to start wireguard-go on exist now
	var at [2]netip.AddrPort
	for i := range d.both {
		if err := d.startOne(i, mtu, spec.Via == ""); err != nil {
			return load.Ends{}, err
		}
		port, err := d.both[i].port()
		if err != nil {
			return load.Ends{}, err
		}
		at[i] = netip.AddrPortFrom(underlayAddrs[i], port)
	}
	if err := connectBoth(d.both, at, spec.Via); err != nil {
		return load.Ends{}, err
	}
	ends, err := d.ends()
	ends.Close, ends.Began = d.close, began
	return ends, err
}

// startOne creates a TUN device and runs wireguard-go on it. If inside, its socket is in the
// namespace.
func (d *devices) startOne(i, mtu int, inside bool) (err error) {
	s := d.sites[i]
	var t tun.Device
	s.in(func() { t, err = tun.CreateTUN(tunNames[i], mtu) })
	if err != nil {
		return fmt.Errorf("make TUN device (needs root and /dev/net/tun): %w", err)
	}
	bind := conn.NewDefaultBind()
	if inside {
		bind = insideBind{bind, s.namespace}
	}
	if d.both[i], err = newEnd(fixedMTU{t, mtu}, bind, overlayAddrs[i]); err != nil {
		return errors.Join(err, t.Close())
	}
	return s.setUp(tunNames[i], overlayAddrs[i], mtu)
}

// close ends the devices and releases the namespaces.
func (d *devices) close() error {
	for _, e := range d.both {
		if e != nil {
			e.Close()
		}
	}
	return d.sites.close()
}

// insideBind is a bind with sockets in a namespace. The device opens them when it comes up, from
// whichever goroutine notices that.
type insideBind struct {
	conn.Bind
	ns *namespace
}

func (b insideBind) Open(port uint16) (receive []conn.ReceiveFunc, actual uint16, err error) {
	b.ns.in(func() { receive, actual, err = b.Bind.Open(port) })
	return receive, actual, err
}

// fixedMTU is a TUN device with a known MTU. The MTU method of package tun would ask the kernel for
// an interface of that name, from a thread in another namespace.
type fixedMTU struct {
	tun.Device
	mtu int
}

func (t fixedMTU) MTU() (int, error) { return t.mtu, nil }
