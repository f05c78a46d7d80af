package underlay

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/testenv/patience"
)

// numbered returns a session's data message in WireGuard's form.
func numbered(session uint32, counter uint64, size int) []byte {
	b := make([]byte, size)
	b[0] = typeData
	binary.LittleEndian.PutUint32(b[4:], session)
	binary.LittleEndian.PutUint64(b[8:], counter)
	return b
}

func TestSocketsThatSmallBuffersTake(t *testing.T) {
	for _, test := range []struct{ granted, wanted, want int }{
		{4 << 20, 4 << 20, 1},
		{smallBuffer, 4 << 20, 1},
		{smallBuffer - 1, 4 << 20, 8},
		{212_992, 4 << 20, 8},
		{1152, 4 << 20, 8},
		{64 << 10, 64 << 10, 1},
		{64 << 10, 128 << 10, 2},
		{64 << 10, 200 << 10, 4},
	} {
		if got := lanesFor(test.granted, test.wanted); got != test.want {
			t.Errorf("%d bytes granted of %d: got %d sockets, want %d", test.granted, test.wanted, got, test.want)
		}
	}
}

// queued waits until something has arrived, while nobody reads, and returns in which lanes.
func queued(t *testing.T, g *spread, before []uint32) (at []int, now []uint32) {
	t.Helper()
	for deadline := time.Now().Add(patience.Left()); len(at) == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("nothing arrived")
		}
		now = nil
		for i, l := range g.lanes {
			m, err := memoryOf(l.fd)
			if err != nil {
				t.Fatal(err)
			}
			if m.queued != before[i] {
				at = append(at, i)
			}
			now = append(now, m.queued)
		}
	}
	return at, now
}

// The lanes and the program use the order in which the sockets joined.
func TestOnlyDataLeavesTheFirstSocket(t *testing.T) {
	for _, c := range leanCases() {
		b := c.make(Options{})
		_, port, err := b.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		s := leanOf(b).v4.Load()
		if c.addr.Is6() {
			s = leanOf(b).v6.Load()
		}
		if s.spread == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			type message struct {
				name string
				data []byte
				lane int
			}
			reserved := numbered(1, 64, 32)
			reserved[2] = 1
			messages := []message{
				{"an initiation", initiation(1 << 6), 0},
				{"a response", response(1 << 6), 0},
				{"a cookie reply", append([]byte{typeCookieReply, 0, 0, 0}, make([]byte, sizeCookieReply-4)...), 0},
				{"STUN", stunRequest(), 0},
				{"ChannelData", append([]byte{0x40, 0, 0, 0}, numbered(1, 64, 32)...), 0},
				{"data without a counter", numbered(1, 1<<6, 32)[:9], 0},
				{"data with a reserved byte set", reserved, 0},
			}
			for i := range 3 * maxLanes {
				messages = append(messages,
					message{"a block's first", numbered(1, uint64(i)<<6, 32), i % maxLanes},
					message{"a block's last", numbered(1, uint64(i)<<6+63, 1452), i % maxLanes},
					message{"a long session's", numbered(1, uint64(i)<<6+1<<40, 32), i % maxLanes})
			}
			from, before := plain(t, c.addr), make([]uint32, maxLanes)
			for _, m := range messages {
				var at []int
				write(t, from, m.data, netip.AddrPortFrom(c.addr, port))
				if at, before = queued(t, s.spread, before); len(at) != 1 || at[0] != m.lane {
					t.Errorf("%s (%.16x): came to the sockets %v, want %d", m.name, m.data, at, m.lane)
				}
			}
		})
	}
}

// Each datagram has to wake the receiver, on whichever socket it arrives.
func TestSpreadLosesNoWakeUp(t *testing.T) {
	for _, c := range leanCases() {
		t.Run(c.name, func(t *testing.T) {
			b, from := start(t, c.make(Options{})), plain(t, c.addr)
			var ep conn.Endpoint
			rng := rand.New(rand.NewPCG(1, 2))
			for n := range uint64(5000) {
				some := 1 + rng.IntN(3)
				for i := range some {
					write(t, from, numbered(1, n+uint64(i)<<6, 32), netip.AddrPortFrom(c.addr, b.port))
				}
				for range some {
					got := b.next(t)
					if ep == nil {
						ep = got.ep
					}
					if got.ep != ep {
						t.Fatal("one flow has several endpoints")
					}
				}
			}
		})
	}
}

// If the system forbids sharing, one socket has the port for itself.
func TestSpreadingMayBeRefused(t *testing.T) {
	bind := newSpread(Options{})
	leanOf(bind).steer = func(int, int) error { return unix.EPERM }
	b, from := start(t, bind), plain(t, loopback4)
	if s := leanOf(bind).v4.Load(); s.spread != nil {
		t.Fatal("the socket is spread all the same")
	}
	for n := range uint64(20) {
		write(t, from, numbered(1, n<<6, 32), b.addr())
		b.next(t)
	}
	sharing := net.ListenConfig{Control: sharePort}
	if c, err := sharing.ListenPacket(t.Context(), "udp4", ":"+strconv.Itoa(int(b.port))); err == nil {
		_ = c.Close()
		t.Error("the port is still shared")
	}
}

func TestNobodyElseHasThePort(t *testing.T) {
	b := start(t, newSpread(Options{}))
	for name, make := range map[string]func(Options) *Bind{"New": New, "New with small buffers": newSpread, "NewStd": NewStd} {
		if _, _, err := make(Options{}).Open(b.port); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s: got %v, want %v", name, err, unix.EADDRINUSE)
		}
	}
	from := plain(t, loopback4)
	for n := range uint64(20) {
		write(t, from, numbered(1, n<<6, 32), b.addr())
		b.next(t)
	}
}

func TestBuffersAndDropsOfAllSocketsAreTold(t *testing.T) {
	const size = 64 << 10
	bind := New(Options{MaxPerSocket: size})
	_, port, err := bind.Open(0) // nobody reads
	if err != nil {
		t.Fatal(err)
	}
	if got := bind.Observations(); got.ReceiveBuffer != maxLanes*size || got.SocketDrops != 0 {
		t.Errorf("got %d bytes and %d drops, want %d and none", got.ReceiveBuffer, got.SocketDrops, maxLanes*size)
	}
	overflow(t, bind, port, func(int) []byte { return numbered(1, 3<<6, 1452) })
}

func sharePort(_, _ string, c syscall.RawConn) (err error) {
	cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(cerr, err)
}
