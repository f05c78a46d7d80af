package lan

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/testenv/patience"
)

// loopback is the one interface that every machine has, and that leads nowhere else.
func loopback(t *testing.T) Interface {
	t.Helper()
	i, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	return Interface{Index: i.Index, Name: i.Name, Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}
}

// A message to the group reaches every socket on the interface. A packet to the host's own
// address reaches the responder that owns the port.
func TestThePortIsShared(t *testing.T) {
	lo := loopback(t)
	open := func() Conn {
		c, err := listen(lo, IPv4)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	responder := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); e != nil {
			return e
		}
		return err
	}}
	other, err := responder.ListenPacket(context.Background(), "udp4", "127.0.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a, b := open(), open()

	type message struct {
		text string
		from netip.AddrPort
	}
	heard := make(chan message)
	go func() {
		defer close(heard)
		buf := make([]byte, maxPacket)
		for {
			n, from, err := b.ReadFrom(buf)
			if err != nil {
				return
			}
			heard <- message{string(buf[:n]), from}
		}
	}()
	ours := "to the group " + t.Name()
	if err := a.WriteTo([]byte("to the host "+t.Name()), netip.MustParseAddrPort("127.0.0.1:5353")); err != nil {
		t.Fatal(err)
	}
	if err := a.Multicast([]byte(ours)); err != nil {
		t.Fatal(err)
	}
	for m := range heard { // others on this machine may send, too
		if m.text == "to the host "+t.Name() {
			t.Error("what was sent to the host's own address was taken from its responder")
		}
		if m.text != ours {
			continue
		}
		if m.from.Port() != mdnsPort {
			t.Errorf("the message comes from %v", m.from)
		}
		break
	}
	if err := other.SetReadDeadline(time.Now().Add(patience.Left())); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, maxPacket)
	n, _, err := other.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "to the host "+t.Name() {
		t.Errorf("the host's responder got %q (%v)", buf[:n], err)
	}
	b.Close() // ends the reading
	for range heard {
	}
}

func TestSystemInterfacesSayWhyOneIsUnfit(t *testing.T) {
	list, err := SystemInterfaces([]string{"lo", "nowhere0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Unfit != "loopback" || list[1].Unfit != "there is no such interface" {
		t.Errorf("got %+v", list)
	}
	all, err := SystemInterfaces(nil, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Name == "lo" || i.Unfit == "" {
			t.Errorf("%s counts as fit: %+v", i.Name, i)
		}
	}
}
