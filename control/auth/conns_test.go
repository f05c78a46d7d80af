package auth

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// Nobody is shut out by somebody who has another address, as far as addresses tell people apart.
func TestConnectionsAreBoundedByWhoseTheyAre(t *testing.T) {
	for _, c := range []struct {
		name   string
		bounds bounds
		from   func(i int) string
		others string
		want   int // connections that from gets
	}{
		{"one peer in the tunnel", bounds{conns: peerConns, ipv6: hostBits}, func(int) string { return "fd00::1" }, "fd00::2", peerConns},
		{"all peers in the tunnel", bounds{conns: peerConns, ipv6: hostBits}, func(i int) string { return fmt.Sprintf("fd00::%x", 1+i/64) }, "", totalConns},
		{"a node or an Ingress", bounds{conns: outsideConns, ipv6: ipv6Site}, func(int) string { return "10.0.0.1" }, "10.0.0.2", outsideConns},
		{"the addresses of one IPv6 user", bounds{conns: outsideConns, ipv6: ipv6Site}, func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) }, "2001:db8:0:1::1", outsideConns},
	} {
		l := newBoundedListener(nil, c.bounds)
		var got []netip.Prefix
		for i := range 2 * totalConns {
			if p := network(netip.MustParseAddr(c.from(i)), c.bounds.ipv6); l.take(p) {
				got = append(got, p)
			}
		}
		if len(got) != c.want {
			t.Errorf("%s: %d connections, want %d", c.name, len(got), c.want)
		}
		if c.others != "" && !l.take(network(netip.MustParseAddr(c.others), c.bounds.ipv6)) {
			t.Errorf("%s: %s is shut out", c.name, c.others)
		}
		for _, p := range got {
			l.release(p)
		}
		if !l.take(got[0]) {
			t.Errorf("%s: none after all are closed", c.name)
		}
	}
}

// Who says nothing outside the tunnel does not keep a connection for long.
func TestSilentStrangersAreHungUpOn(t *testing.T) {
	o := serveOutside(t)
	start := time.Now()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", o.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(start.Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	if took := time.Since(start); err == nil || took < outsideHeaderTimeout-100*time.Millisecond || took > 30*time.Second {
		t.Errorf("the connection ended after %v with %v", took, err)
	}
}
