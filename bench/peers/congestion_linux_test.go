package main

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/bench/peers/load"
)

// Both ends of a connection have the requested congestion control, and the machine's setting is
// unchanged.
func TestConnectionsHaveTheCongestionControlOfTheirSubject(t *testing.T) {
	const machines = "/proc/sys/net/ipv4/tcp_congestion_control"
	if _, ok := subjects(t)["wireguard-tun"]; !ok {
		return // it cannot run here, as subjects has logged
	}
	before := read(t, machines)
	for _, name := range strings.Fields(read(t, available)) {
		ends, err := newTUNWith(name)(t.Context(), load.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := ends.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in, err := ends.Listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []net.Conn{out, in} {
			if got := controlOf(t, c); got != name {
				t.Errorf("asked for %s, got %s", name, got)
			}
			c.Close()
		}
		if err := errors.Join(ends.Listener.Close(), ends.Close()); err != nil {
			t.Error(err)
		}
	}
	if after := read(t, machines); after != before {
		t.Errorf("the machine has %s, and had %s", after, before)
	}
}

func TestACongestionControlThatIsMissingIsToldOf(t *testing.T) {
	if _, ok := subjects(t)["wireguard-tun"]; !ok {
		return
	}
	_, err := newTUNWith("tortoise")(t.Context(), load.Spec{})
	if want := `the kernel has no congestion control "tortoise", only ` + read(t, available); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// controlOf asks the kernel for a connection's congestion control.
func controlOf(t *testing.T, c net.Conn) (name string) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		// The kernel fills 16 bytes. Those after the name are zero.
		if name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(name, "\x00")
}
