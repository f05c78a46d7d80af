package underlay

import "testing"

func TestICMPErrorsHaveReasons(t *testing.T) {
	for _, test := range []struct {
		family    string
		typ, code uint8
		info      uint32
		want      string
	}{
		{"IPv4", 3, 0, 0, "network unreachable"},
		{"IPv4", 3, 1, 0, "host unreachable"},
		{"IPv4", 3, 2, 0, "protocol unreachable"},
		{"IPv4", 3, 3, 0, "port unreachable"},
		{"IPv4", 3, 4, 1400, "fragmentation needed (mtu 1400)"},
		{"IPv4", 3, 13, 0, "administratively prohibited"},
		{"IPv4", 3, 200, 0, ""},
		{"IPv4", 11, 0, 0, ""}, // TTL exceeded, as for packets that open NATs
		{"IPv4", 12, 0, 0, ""},
		{"IPv6", 1, 0, 0, "network unreachable"},
		{"IPv6", 1, 1, 0, "administratively prohibited"},
		{"IPv6", 1, 3, 0, "host unreachable"},
		{"IPv6", 1, 4, 0, "port unreachable"},
		{"IPv6", 1, 200, 0, ""},
		{"IPv6", 2, 0, 1280, "fragmentation needed (mtu 1280)"},
		{"IPv6", 3, 0, 0, ""},
	} {
		read := ofICMP
		if test.family == "IPv6" {
			read = ofICMPv6
		}
		if got := read(test.typ, test.code, test.info).String(); got != test.want {
			t.Errorf("%s type %d code %d: got %q, want %q", test.family, test.typ, test.code, got, test.want)
		}
	}
	o := observing()
	o.unreachableCame(known, ofICMP(11, 0, 0), begin)
	if got := o.observations().Unreachable; len(got) != 0 {
		t.Errorf("a TTL that was exceeded was taken for %v", got)
	}
}
