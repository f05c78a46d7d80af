package underlay

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

// readTTL waits for a datagram and returns its TTL or hop limit.
func readTTL(t *testing.T, c *net.UDPConn) int {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience.Left())); err != nil {
		t.Fatal(err)
	}
	b, control := make([]byte, 1<<16), make([]byte, 256)
	_, n, _, _, err := c.ReadMsgUDP(b, control)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL ||
			m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT {
			return int(m.Data[0])
		}
	}
	t.Fatal("the datagram came without a TTL")
	return 0
}

func setInt(t *testing.T, c syscall.Conn, level, option int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
}

func TestProbeTravelsWithItsTTL(t *testing.T) {
	for _, addr := range []netip.Addr{loopback4, loopback6} {
		t.Run(addr.String(), func(t *testing.T) {
			b, c := start(t, New(Options{})), plain(t, addr)
			if addr.Is4() {
				setInt(t, c, unix.IPPROTO_IP, unix.IP_RECVTTL)
			} else {
				setInt(t, c, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT)
			}
			to := peer.Direct(localAddr(c))
			if err := b.WriteTo(stunRequest(), to); err != nil {
				t.Fatal(err)
			}
			usual := readTTL(t, c)
			for _, o := range []SendOptions{{TTL: 3}, {TTL: 255, DontFragment: true}, {TTL: 1}} {
				if err := b.WriteProbe(stunRequest(), to, o); err != nil {
					t.Fatalf("%+v: %v", o, err)
				}
				if got := readTTL(t, c); got != o.TTL {
					t.Errorf("got a TTL of %d, want %d", got, o.TTL)
				}
			}
			if err := b.WriteProbe(stunRequest(), to, SendOptions{DontFragment: true}); err != nil {
				t.Fatal(err)
			}
			if got := readTTL(t, c); got != usual {
				t.Errorf("without one: got a TTL of %d, want the usual %d", got, usual)
			}
			for _, ttl := range []int{-1, 256} {
				if err := b.WriteProbe(stunRequest(), to, SendOptions{TTL: ttl}); err == nil {
					t.Errorf("a TTL of %d was accepted", ttl)
				}
			}
		})
	}
}

// mtuDiscovery returns how the socket treats DF.
func mtuDiscovery(t *testing.T, fd uintptr) int {
	t.Helper()
	v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER)
	if err != nil {
		t.Error(err)
	}
	return v
}

func TestOnlyProbesForbidFragments(t *testing.T) {
	bind := New(Options{})
	var during []int
	leanOf(bind).sendmsg = func(fd uintptr, m *unix.Msghdr) unix.Errno {
		during = append(during, mtuDiscovery(t, fd))
		return sendmsg(fd, m)
	}
	b, c := start(t, bind), plain(t, loopback4)
	to := peer.Direct(localAddr(c))
	for _, o := range []SendOptions{{}, {DontFragment: true}, {TTL: 9}, {TTL: 9, DontFragment: true}, {}} {
		if err := b.WriteProbe(stunRequest(), to, o); err != nil {
			t.Fatal(err)
		}
		read(t, c)
	}
	want := []int{unix.IP_PMTUDISC_DONT, unix.IP_PMTUDISC_PROBE, unix.IP_PMTUDISC_DONT, unix.IP_PMTUDISC_PROBE, unix.IP_PMTUDISC_DONT}
	for i, w := range want {
		if during[i] != w {
			t.Errorf("datagram %d was sent with IP_MTU_DISCOVER %d, want %d", i, during[i], w)
		}
	}
}

// The loopback interface's MTU is 65536 bytes, and a UDP datagram over IPv6 can be longer.
func TestProbeThatIsTooLongForTheInterface(t *testing.T) {
	const size = 65527 // 65575 bytes with the headers
	b, c := start(t, New(Options{})), plain(t, loopback6)
	to := peer.Direct(localAddr(c))
	if err := b.WriteProbe(data(1, size), to, SendOptions{DontFragment: true}); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("got %v, want %v", err, unix.EMSGSIZE)
	}
	if err := b.WriteTo(data(2, size), to); err != nil {
		t.Fatalf("in fragments: %v", err)
	}
	if got, _ := read(t, c); len(got) != size || got[15] != 2 {
		t.Errorf("got %d bytes, want %d", len(got), size)
	}
}

// While a probe forbids fragments on the socket, data that needs them is refused. It must be sent
// again after the probe.
func TestDataThatMetAProbeIsSentAgain(t *testing.T) {
	bind := New(Options{})
	calls := 0
	leanOf(bind).sendmsg = func(fd uintptr, m *unix.Msghdr) unix.Errno {
		if calls++; calls == 1 {
			return unix.EMSGSIZE
		}
		return sendmsg(fd, m)
	}
	b, c := start(t, bind), plain(t, loopback4)
	if err := b.WriteTo(data(1, 1452), peer.Direct(localAddr(c))); err != nil {
		t.Fatal(err)
	}
	expect(t, c, "data", data(1, 1452))
}

func TestProbeOverAFamilyThatIsMissing(t *testing.T) {
	b := start(t, New(Options{}))
	leanOf(b.Bind).v6.Swap(nil).conn.Close() // as if the kernel had no IPv6
	err := b.WriteProbe(stunRequest(), peer.Direct(netip.MustParseAddrPort("[::1]:9")), SendOptions{TTL: 1})
	if !errors.Is(err, unix.EAFNOSUPPORT) {
		t.Errorf("got %v, want %v", err, unix.EAFNOSUPPORT)
	}
}

func TestProbeOfAClosedBind(t *testing.T) {
	err := New(Options{}).WriteProbe(stunRequest(), peer.Direct(netip.AddrPortFrom(loopback4, 9)), SendOptions{TTL: 1})
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
}
