package api

import (
	"net/netip"
	"testing"
)

func TestPortsAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Ports{
		"5000":          {TCP, 5000, 5000},
		"5000-5010":     {TCP, 5000, 5010},
		"53/UDP":        {UDP, 53, 53},
		"1-1024/UDP":    {UDP, 1, 1024},
		"64512-65535":   {TCP, 64512, 65535},
		"5000-5010/TCP": {TCP, 5000, 5010},
	} {
		p, err := ParsePorts(text)
		if err != nil || p != want {
			t.Errorf("%s: got %v, %v", text, p, err)
		}
		if again, err := ParsePorts(p.String()); err != nil || again != p {
			t.Errorf("%s is written as %s, which is %v, %v", text, p, again, err)
		}
	}
	for _, text := range []string{"", "x", "5000-", "-5000", "65536", "5010-5000", "0-5", "1-1025", "53/SCTP", "53/udp", "53/", "1-2-3", "+5", "5 "} {
		if p, err := ParsePorts(text); err == nil {
			t.Errorf("%q is taken for %v", text, p)
		}
	}
}

func TestPortsOverlapWithinAProtocol(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"53", "53/UDP", false},
		{"5000-5010", "5010-5020", true},
		{"5000-5010/UDP", "5011/UDP", false},
		{"5000-5010/UDP", "5005/UDP", true},
	} {
		a, _ := ParsePorts(c.a)
		b, _ := ParsePorts(c.b)
		if a.Overlaps(b) != c.want || b.Overlaps(a) != c.want {
			t.Errorf("%s and %s: want %v", a, b, c.want)
		}
	}
}

func TestListenersAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]ListenAddress{
		"127.0.0.1:7443":          {netip.MustParseAddr("127.0.0.1"), PortsOf(7443)},
		"127.0.0.1:0":             {netip.MustParseAddr("127.0.0.1"), PortsOf(0)},
		"[::1]:53/UDP":            {netip.IPv6Loopback(), Ports{UDP, 53, 53}},
		"127.0.0.1:6000-6010/UDP": {netip.MustParseAddr("127.0.0.1"), Ports{UDP, 6000, 6010}},
	} {
		l, err := ParseListen(text)
		if err != nil || l != want || l.String() != text {
			t.Errorf("%s: got %v, %v", text, l, err)
		}
	}
	for _, text := range []string{"", ":7443", "127.0.0.1", "localhost:53", "127.0.0.1:", "127.0.0.1:53/SCTP", "::1:53", "127.0.0.1:1-5000"} {
		if l, err := ParseListen(text); err == nil {
			t.Errorf("%q is taken for %v", text, l)
		}
	}
}

// Whatever is read is written so that it is read again, and within its bounds.
func FuzzParseListen(f *testing.F) {
	for _, s := range []string{"127.0.0.1:7443", "[fe80::1%eth0]:53/UDP", "127.0.0.1:6000-6010/UDP", "[::ffff:1.2.3.4]:0", "x:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseListen(s)
		if err != nil {
			return
		}
		if n := l.Len(); n < 1 || n > MaxPorts || l.At(n-1).Port() != l.Last {
			t.Errorf("%q has %d ports, the last %v", s, n, l.At(n-1))
		}
		if again, err := ParseListen(l.String()); err != nil || again != l {
			t.Errorf("%q is written as %q, which is %v, %v", s, l, again, err)
		}
	})
}

func TestWhatHasAllAddressesOverlaps(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"0.0.0.0:80", "127.0.0.2:80", true},
		{"0.0.0.0:80", "[::1]:80", false},
		{"[::]:80", "127.0.0.1:80", true},
		{"[::]:80", "0.0.0.0:80", true},
		{"[::]:80/UDP", "127.0.0.1:80", false},
		{"0.0.0.0:70-80", "127.0.0.1:81", false},
	} {
		a, errA := ParseListen(c.a)
		b, errB := ParseListen(c.b)
		if errA != nil || errB != nil || a.Overlaps(b) != c.want || b.Overlaps(a) != c.want {
			t.Errorf("%s and %s: %v, %v; want %v", c.a, c.b, a.Overlaps(b), b.Overlaps(a), c.want)
		}
	}
}
