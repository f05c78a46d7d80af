package main

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
)

// forwarder forwards datagrams between the first two addresses that speak to it, like that of the
// WAN scenarios, and counts bytes.
type forwarder struct {
	conn  *net.UDPConn
	bytes atomic.Int64
}

func newForwarder(t *testing.T) *forwarder {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{conn: conn}
	var running sync.WaitGroup
	running.Go(f.run)
	t.Cleanup(func() {
		conn.Close()
		running.Wait()
	})
	return f
}

func (f *forwarder) at() string { return f.conn.LocalAddr().String() }

// run forwards until the socket is closed. Datagrams of the first end are lost until the second
// one has spoken.
func (f *forwarder) run() {
	var ends []netip.AddrPort
	packet := make([]byte, 1<<16)
	for {
		n, from, err := f.conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			return
		}
		if len(ends) == 0 || len(ends) == 1 && ends[0] != from {
			ends = append(ends, from)
		}
		for i, end := range ends {
			if end == from && len(ends) == 2 {
				f.bytes.Add(int64(n))
				_, _ = f.conn.WriteToUDPAddrPort(packet[:n], ends[1-i])
			}
		}
	}
}
