//go:build linux && e2e

package netlab

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestHostsOfANetworkReachEachOther(t *testing.T) {
	lab := New(t)
	n := lab.Network("lan", netip.MustParsePrefix("192.0.2.0/24"))
	a, b := lab.Host("a"), lab.Host("b")
	a.Attach("eth0", n, addr("192.0.2.1"))
	b.Attach("eth0", n, addr("192.0.2.2"))
	if _, err := a.Run(deadline(t), "ip", "route", "get", "192.0.2.2"); err != nil {
		t.Fatal(err)
	}
	l, err := b.Listen(deadline(t), netip.MustParseAddrPort("192.0.2.2:8080"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := a.DialContext(deadline(t), "tcp", "192.0.2.2:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got := in.RemoteAddr().String(); !strings.HasPrefix(got, "192.0.2.1:") {
		t.Errorf("b sees a connection from %s, want 192.0.2.1", got)
	}
}

func TestHostsAreAlone(t *testing.T) {
	lab := New(t)
	h := lab.Host("lonely")
	out, err := h.Run(deadline(t), "ip", "-brief", "link")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if name := strings.Fields(line)[0]; name != "lo" && !strings.HasPrefix(name, "tunl0") && !strings.HasPrefix(name, "sit0") && !strings.HasPrefix(name, "ip6tnl0") {
			t.Errorf("a new host has interface %s", name)
		}
	}
	if _, err := h.DialContext(deadline(t), "udp", "name:1"); err == nil {
		t.Error("a name was looked up from inside a namespace")
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	var prefix string
	t.Run("a lab", func(t *testing.T) {
		lab := New(t)
		prefix = lab.prefix
		lab.Host("a").Start(Command{Args: []string{"sleep", "600"}})
		lab.Network("n", netip.MustParsePrefix("192.0.2.0/24"))
	})
	names, err := namespaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, prefix) {
			t.Errorf("namespace %s is left", n)
		}
	}
}

// TestNewLabRemovesWhatDeadTestsLeft creates namespaces in the name of a process that has ended
// and of one that is running.
func TestNewLabRemovesWhatDeadTestsLeft(t *testing.T) {
	child := exec.CommandContext(deadline(t), "sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	theirs, err := processOwner(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	name := theirs.namePrefix() + "x-host"
	if _, err := Run(deadline(t), "", "", "ip", "netns", "add", name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deleteNamespace(name) })
	path := filepath.Join(netnsDir, name)

	New(t)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a live process's namespace: %v", err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // reports the kill
	New(t)
	if _, err := os.Stat(path); err == nil {
		t.Error("a dead process's namespace is still there")
	}
}

func TestRateIsBounded(t *testing.T) {
	lab := New(t)
	n := lab.Network("lan", netip.MustParsePrefix("192.0.2.0/24"))
	a, b := lab.Host("a"), lab.Host("b")
	a.Attach("eth0", n, addr("192.0.2.1"))
	b.Attach("eth0", n, addr("192.0.2.2"))
	const rate, size = 16_000_000, 1 << 20 // bit/s, bytes: 0.4 s beyond the burst
	a.LimitRate("eth0", rate)
	l, err := b.Listen(deadline(t), netip.MustParseAddrPort("192.0.2.2:8080"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	start := time.Now() // not when it is accepted: much may have arrived by then
	go func() {
		c, err := a.DialContext(deadline(t), "tcp", "192.0.2.2:8080")
		if err != nil {
			t.Error(err)
			l.Close()
			return
		}
		defer c.Close()
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Error(err)
		}
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := readAll(c)
	if err != nil || got != size {
		t.Fatalf("received %d bytes, error %v; want %d", got, err, size)
	}
	burst := rate / 8 / 10
	if took, least := time.Since(start), time.Duration(size-burst)*8*time.Second/rate*9/10; took < least {
		t.Errorf("%d bytes at %d bit/s took %v, want at least %v", size, rate, took, least)
	}
}

func TestLossIsAsAsked(t *testing.T) {
	lab := New(t)
	n := lab.Network("lan", netip.MustParsePrefix("192.0.2.0/24"))
	a, b := lab.Host("a"), lab.Host("b")
	a.Attach("eth0", n, addr("192.0.2.1"))
	b.Attach("eth0", n, addr("192.0.2.2"))
	in, err := b.ListenUDP(netip.MustParseAddrPort("192.0.2.2:9"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := a.ListenUDP(netip.MustParseAddrPort("192.0.2.1:9"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	count := func(perMille int) int {
		b.DropIncoming("eth0", perMille)
		const total = 200 // more would overflow the socket's buffer
		for range total {
			if _, err := out.WriteToUDPAddrPort([]byte("x"), netip.MustParseAddrPort("192.0.2.2:9")); err != nil {
				t.Fatal(err)
			}
		}
		b.DropIncoming("eth0", 0)
		if _, err := out.WriteToUDPAddrPort([]byte("end"), netip.MustParseAddrPort("192.0.2.2:9")); err != nil {
			t.Fatal(err)
		}
		for got := 0; ; got++ {
			if s := receive(t, in).text; s == "end" {
				return got
			}
		}
	}
	// With 200 packets and p = 1/2 the bounds are 10 standard deviations away.
	if got := count(500); got < 30 || got > 170 {
		t.Errorf("%d of 200 packets survived 50 %% loss", got)
	}
	if got := count(0); got != 200 {
		t.Errorf("%d of 200 packets arrived without loss", got)
	}
	if got := count(1000); got != 0 {
		t.Errorf("%d of 200 packets survived a total loss", got)
	}
}
