package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestDomainsToBrowse has one domain twice.
func TestDomainsToBrowse(t *testing.T) {
	r, err := loaded(t, "  discovery: {dns: {domains: [Example.COM., example.com, example.net], servers: [192.0.2.53, \"[2001:db8::53]:5353\"]}}\n")
	if err != nil {
		t.Fatal(err)
	}
	d := r.Discovery.DNS
	servers := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53"), netip.MustParseAddrPort("[2001:db8::53]:5353")}
	if !slices.Equal(d.Domains, []string{"example.com", "example.net"}) || !slices.Equal(d.Servers, servers) || len(r.Warnings) != 0 {
		t.Errorf("got %+v, warnings %v", d, r.Warnings)
	}
}

func TestDomainsThatCannotBeBrowsed(t *testing.T) {
	for spec, want := range map[string]string{
		"{domains: [a..b]}":                                       `spec.discovery.dns.domains[0]: "a..b" is not a domain name`,
		"{domains: [office.local]}":                               `"office.local" is not in DNS: names in .local are asked for on the local network`,
		"{domains: [example.com], servers: [ns]}":                 `spec.discovery.dns.servers[0]: "ns" is not an IP address, with or without a port`,
		"{domains: [example.com], servers: [0.0.0.0]}":            `"0.0.0.0" cannot be a server's address`,
		"{domains: [example.com], servers: [1.1.1.1:0]}":          `"1.1.1.1:0" cannot be a server's address`,
		"{domains: [" + strings.Repeat("example.com,", 17) + "]}": "17 domains, and at most 16 are browsed",
	} {
		if _, err := loaded(t, "  discovery: {dns: "+spec+"}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	r, err := loaded(t, "  discovery: {dns: {servers: [192.0.2.53]}}\n")
	if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Error(), "nobody is asked") {
		t.Errorf("servers without domains: %v, %v", err, r.Warnings)
	}
}
