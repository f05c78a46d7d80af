package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/peers/tsnet/load"
)

// patience bounds what only a failure makes wait.
const patience = 90 * time.Second

func TestEndsCarryStreamsAndDatagrams(t *testing.T) {
	ends := bringUp(t, load.Spec{})
	exchangeTCP(t, ends, 1<<20)
	exchangeUDP(t, ends)
}

func TestEverythingPassesTheForwarder(t *testing.T) {
	f := newForwarder(t)
	ends := bringUp(t, load.Spec{Via: f.at()})
	before := f.bytes.Load()
	const size = 1 << 20
	exchangeTCP(t, ends, size)
	if n := f.bytes.Load() - before; n < size {
		t.Errorf("%d bytes passed the forwarder, want the %d that were sent and more", n, size)
	}
}

func TestAForwarderThatIsNotThere(t *testing.T) {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0") // Answers nothing.
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // Gives up as soon as somebody has tried.
		_, _, _ = pc.ReadFrom(make([]byte, 1))
		cancel()
	}()
	if _, err := newEnds(ctx, load.Spec{Via: pc.LocalAddr().String()}); err == nil || !strings.Contains(err.Error(), "no direct path") {
		t.Errorf("got %v, want that there is no direct path", err)
	}
	if _, err := newEnds(t.Context(), load.Spec{Via: "nowhere"}); err == nil {
		t.Error("a forwarder without an address: got no error")
	}
}

func bringUp(t *testing.T, spec load.Spec) load.Ends {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ends, err := newEnds(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ends.Close(); err != nil {
			t.Error(err)
		}
	})
	return ends
}

// exchangeTCP sends so many bytes over a connection and looks for them at the other end.
func exchangeTCP(t *testing.T, ends load.Ends, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	want := bytes.Repeat([]byte("postern "), size/8)
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		c, err := ends.Dial(ctx)
		if err != nil {
			t.Error(err)
			ends.Listener.Close()
			return
		}
		_, err = c.Write(want)
		if err = errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
	})
	c, err := ends.Listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v; want the %d that were sent", len(got), err, len(want))
	}
}

// exchangeUDP sends a datagram there, and one back to where it came from.
func exchangeUDP(t *testing.T, ends load.Ends) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pc, err := ends.ListenPacket()
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	c, err := ends.DialPacket(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, end := range []interface{ SetDeadline(time.Time) error }{pc, c} {
		_ = end.SetDeadline(time.Now().Add(patience))
	}
	buffer := make([]byte, 100)
	if _, err := c.Write([]byte("there")); err != nil {
		t.Fatal(err)
	}
	n, from, err := pc.ReadFrom(buffer)
	if err != nil || string(buffer[:n]) != "there" {
		t.Fatalf("got %q, %v", buffer[:n], err)
	}
	if _, err := pc.WriteTo([]byte("back"), from); err != nil {
		t.Fatal(err)
	}
	if n, err = c.Read(buffer); err != nil || string(buffer[:n]) != "back" {
		t.Fatalf("got %q, %v", buffer[:n], err)
	}
}

// forwarder moves datagrams between the first two addresses that speak to it, as the one
// of the WAN scenarios does.
type forwarder struct {
	pc    net.PacketConn
	bytes atomic.Int64
}

func newForwarder(t *testing.T) *forwarder {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{pc: pc}
	var running sync.WaitGroup
	running.Go(f.run)
	t.Cleanup(func() { pc.Close(); running.Wait() })
	return f
}

func (f *forwarder) at() string { return f.pc.LocalAddr().String() }

func (f *forwarder) run() {
	var ends []netip.AddrPort
	packet := make([]byte, 1<<16)
	for {
		n, from, err := f.pc.(*net.UDPConn).ReadFromUDPAddrPort(packet)
		if err != nil {
			return
		}
		if len(ends) < 2 && (len(ends) == 0 || ends[0] != from) {
			ends = append(ends, from)
		}
		for i, end := range ends {
			if end == from && len(ends) == 2 {
				f.bytes.Add(int64(n))
				_, _ = f.pc.(*net.UDPConn).WriteToUDPAddrPort(packet[:n], ends[1-i])
			}
		}
	}
}
