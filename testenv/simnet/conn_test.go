package simnet_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/testenv/simnet"
)

func TestSockets(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		ha, err := in.AddHost(simnet.HostOptions{Name: "a", Addrs: addrs("192.0.2.1"), ReceiveBuffer: 100})
		if err != nil {
			t.Fatal(err)
		}
		a := in.listen(ha, 5)
		var _ net.PacketConn = a
		if _, err := ha.ListenUDP(5); !errors.Is(err, simnet.ErrPortInUse) {
			t.Errorf("the same port again: got %v, want ErrPortInUse", err)
		}
		if e1, e2 := in.listen(ha, 0), in.listen(ha, 0); e1.LocalAddr().String() == e2.LocalAddr().String() {
			t.Errorf("two sockets have the port of %v", e1.LocalAddr())
		}
		if _, err := ha.ListenAddrPort(netip.MustParseAddrPort("192.0.2.7:1")); !errors.Is(err, simnet.ErrAddress) {
			t.Errorf("a foreign address: got %v, want ErrAddress", err)
		}
		if got := a.LocalAddr().String(); got != "[::]:5" {
			t.Errorf("local address: got %s", got)
		}
		if _, err := a.WriteToUDPAddrPort(nil, netip.MustParseAddrPort("[2001:db8::1]:1")); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("no IPv6 here: got %v, want ENETUNREACH", err)
		}
		for range 3 {
			in.send(a, strings.Repeat("x", 50), "192.0.2.1:5")
		}
		if n := a.Overflows(); n != 1 {
			t.Errorf("%d overflows, want 1 of three 50 B datagrams in 100 B", n)
		}
		buf := make([]byte, 20)
		if n, from, err := a.ReadFrom(buf); n != 20 || err != nil || from.String() != "192.0.2.1:5" {
			t.Errorf("short buffer: got %d, %v, %v, want 20 bytes", n, from, err)
		}
		in.receive(a, strings.Repeat("x", 50))
		in.send(a, "closed", "192.0.2.1:6")
		if e := <-a.ICMP(); e.Kind != simnet.PortUnreachable {
			t.Errorf("a closed port: got %+v", e)
		}
		if _, err := a.WriteTo([]byte("x"), &net.TCPAddr{}); err == nil {
			t.Error("an address of another type was accepted")
		}
	})
}

func TestClosingWakesReaders(t *testing.T) {
	for name, end := range map[string]func(in internet, c *simnet.Conn){
		"socket":   func(_ internet, c *simnet.Conn) { _ = c.Close() },
		"internet": func(in internet, _ *simnet.Conn) { in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 1, func(t *testing.T, in internet) {
				c := in.listen(in.host("a", "192.0.2.1", nil, simnet.Conditions{Delay: time.Second}), 1)
				in.send(c, "never arrives", "192.0.2.2:1")
				var reading sync.WaitGroup
				reading.Go(func() {
					if _, _, err := c.ReadFromUDPAddrPort(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
						t.Errorf("read: got %v, want net.ErrClosed", err)
					}
				})
				synctest.Wait()
				end(in, c)
				reading.Wait()
				if _, err := c.WriteToUDPAddrPort(nil, netip.MustParseAddrPort("192.0.2.1:1")); !errors.Is(err, net.ErrClosed) {
					t.Errorf("write: got %v, want net.ErrClosed", err)
				}
				if err := c.SetReadDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
					t.Errorf("deadline: got %v, want net.ErrClosed", err)
				}
			})
		})
	}
}

func TestNamesAndAddressesAreUnique(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		in.host("a", "192.0.2.1", nil, simnet.Conditions{})
		for name, o := range map[string]simnet.HostOptions{
			"no name":        {Addrs: addrs("192.0.2.2")},
			"taken name":     {Name: "a", Addrs: addrs("192.0.2.2")},
			"taken address":  {Name: "b", Addrs: addrs("192.0.2.1")},
			"twice":          {Name: "b", Addrs: addrs("192.0.2.3", "::ffff:192.0.2.3")},
			"no address":     {Name: "b"},
			"loopback":       {Name: "b", Addrs: addrs("127.0.0.1")},
			"bad conditions": {Name: "b", Addrs: addrs("192.0.2.2"), Link: simnet.Both(simnet.Conditions{Loss: 2})},
		} {
			if _, err := in.AddHost(o); err == nil {
				t.Errorf("%s: want an error", name)
			}
		}
		in.host("b", "192.0.2.2", nil, simnet.Conditions{}) // failed calls left nothing behind
	})
}
