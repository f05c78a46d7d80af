package discovery

import (
	"net/netip"
	"strings"
	"testing"
)

func TestOnlyWhatMayBeSomebodyElsesIsDialable(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("192.168.1.5"), netip.MustParseAddr("::ffff:10.0.0.5"), netip.MustParseAddr("2001:db8::5")}
	forbidden := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("2001:db8:42::/48")}
	for to, want := range map[string]string{
		"203.0.113.8:51820":             "",
		"192.168.1.6:51820":             "", // a private address may be the peer's in the same network
		"100.64.0.9:51820":              "",
		"[2001:db8::6]:51820":           "",
		"[64:ff9b::203.0.113.8]:51820":  "",
		"[::ffff:203.0.113.8]:1":        "",
		"203.0.113.8:0":                 "port 0",
		"127.0.0.1:1":                   "loopback",
		"127.255.1.2:1":                 "loopback",
		"[::1]:1":                       "loopback",
		"[::ffff:127.0.0.1]:1":          "loopback",
		"[64:ff9b::127.0.0.1]:1":        "loopback",
		"0.0.0.0:1":                     "not an address",
		"[::]:1":                        "not an address",
		"0.1.2.3:1":                     "reserved",
		"240.0.0.1:1":                   "reserved",
		"[::5]:1":                       "reserved",
		"[::10.0.0.1]:1":                "reserved",
		"255.255.255.255:1":             "broadcast",
		"224.0.0.251:5353":              "multicast",
		"[ff02::1]:1":                   "multicast",
		"169.254.1.1:1":                 "link-local",
		"[fe80::1%eth0]:1":              "zone",
		"[fe80::1]:1":                   "link-local",
		"169.254.169.254:80":            "metadata",
		"[::ffff:169.254.169.254]:80":   "metadata",
		"[64:ff9b::169.254.169.254]:80": "metadata",
		"[fd00:ec2::254]:80":            "metadata",
		"168.63.129.16:80":              "metadata",
		"192.0.0.192:80":                "metadata",
		"[fd20:ce::254]:80":             "metadata",
		"100.100.100.200:80":            "metadata",
		"[fd12:3456::1]:1":              "overlay",
		"192.168.1.5:1":                 "this host",
		"10.0.0.5:1":                    "this host",
		"[2001:db8::6%eth0]:1":          "zone",
		"[64:ff9b::192.168.1.5]:1":      "this host",
		"[2002:c0a8:106::1]:51820":      "",
		"[2002:cb00:7108::1]:51820":     "",
		"[2001:0:4136:e378:8000:63bf:3fff:fdd2]:51820": "",
		"[64:ff9b::10.43.0.1]:443":                     "in 10.43.0.0/16",
		"[64:ff9b:1::a9fe:a9fe]:80":                    "NAT64",
		"[64:ff9b:1:a2b:0:1::]:443":                    "NAT64",
		"[64:ff9b:1::c0a8:105]:1":                      "NAT64",
		"[2002:a9fe:a9fe::1]:80":                       "metadata",
		"[2002:a2b:1::1]:443":                          "in 10.43.0.0/16",
		"[2002:c0a8:105::1]:1":                         "this host",
		"[2002:7f00:1::1]:1":                           "loopback",
		"[2001:0:a2b:1::f5ff:fffa]:443":                "in 10.43.0.0/16",
		"[2001:0:4136:e378::5601:5601]:80":             "metadata",
		"[::ffff:0:169.254.169.254]:80":                "metadata",
		"10.42.3.4:1":                                  "in 10.42.0.0/16",
		"[::ffff:10.43.0.1]:443":                       "in 10.43.0.0/16",
		"[2001:db8:42::1]:1":                           "in 2001:db8:42::/48",
	} {
		got := Dialable(netip.MustParseAddrPort(to), own, forbidden)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q in it", to, got, want)
		}
	}
	if Dialable(netip.AddrPort{}, nil, nil) == "" {
		t.Error("the zero address may be dialled")
	}
}
