package special

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestGlobalIsWhatTheInternetRoutes(t *testing.T) {
	for want, addresses := range map[bool][]string{
		true: {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.32.0.1", "192.0.1.0", "198.17.255.255", "198.20.0.0",
			"223.255.255.255", "::ffff:1.1.1.1", "2000::1", "2001:200::1", "2606:4700:4700::1111", "2a00:1450::1", "3ffe::1"},
		false: {"0.1.2.3", "10.0.0.5", "100.64.0.9", "127.0.0.1", "169.254.169.254", "172.31.0.1", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.7.9",
			"198.18.0.5", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.251", "240.0.0.1", "255.255.255.255", "::ffff:10.0.0.5",
			"::", "::1", "::1.1.1.1", "::ffff:0:1.1.1.1", "64:ff9b::1.1.1.1", "64:ff9b:1::1.1.1.1", "100::1", "2001::1", "2001:2::1", "2001:db8::1",
			"2002:101:101::1", "3fff::1", "4000::1", "5f00::1", "fc00::1", "fd12:3456::9", "fe80::1", "fec0::5", "ff02::1", "2606:4700::1%eth0"},
	} {
		for _, a := range addresses {
			if got := Global(netip.MustParseAddr(a)); got != want {
				t.Errorf("%s: global is %v, want %v", a, got, want)
			}
		}
	}
	if Global(netip.Addr{}) {
		t.Error("the zero address is global")
	}
}

func TestEmbeddedAddressesAreFound(t *testing.T) {
	for a, want := range map[string]string{
		"10.0.0.5":                             "[]",
		"::ffff:10.0.0.5":                      "[]", // is 10.0.0.5
		"2606:4700::1":                         "[]",
		"::10.0.0.5":                           "[10.0.0.5]",
		"::ffff:0:10.0.0.5":                    "[10.0.0.5]",
		"64:ff9b::10.0.0.5":                    "[10.0.0.5]",
		"64:ff9b::1:a00:5":                     "[]",
		"64:ff9b:1::a00:5":                     "[invalid IP]",
		"64:ff9b:1:a00:0:5::":                  "[invalid IP]",
		"2002:a00:5::1":                        "[10.0.0.5]",
		"2002:a00:5::1%eth0":                   "[10.0.0.5]",
		"2001:0:a00:5:0:ffff:f5ff:fffa":        "[10.0.0.5 10.0.0.5]",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2": "[65.54.227.120 192.0.2.45]", // RFC 4380's example
	} {
		if got := fmt.Sprint(Embedded(netip.MustParseAddr(a))); got != want {
			t.Errorf("%s leads to %s, want %s", a, got, want)
		}
	}
	if got := Embedded(netip.Addr{}); got != nil {
		t.Errorf("the zero address leads to %v", got)
	}
}
