package catalogue

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A fix that a peer's report prints names the address at which this gateway reaches that peer, and
// never one of the report's.
func TestAReportsFixNamesWhereThePeerIs(t *testing.T) {
	for _, c := range []Code{PacketsLost, PathSlow} {
		p := Params{Peer: "cloud", Inbound: true, Heard: true, Address: "192.0.2.66:666"}
		if _, fix := render(c, p); strings.Contains(fix, "192.0.2.66") || !strings.Contains(fix, "ADDRESS is an address of cloud, which `postern path cloud` shows") {
			t.Errorf("%s: not reached: %s", c, fix)
		}
		p.Reached = "198.51.100.7:40582"
		if _, fix := render(c, p); !strings.Contains(fix, "--port 40582 198.51.100.7`") || strings.Contains(fix, "ADDRESS") {
			t.Errorf("%s: reached: %s", c, fix)
		}
	}
}

// literal are words in capitals that belong to commands and settings as they are.
var literal = []string{"API", "AUTH", "CPU", "DNS", "FAILED", "HTTP", "HTTPS", "ICMP", "IGMP", "LAN", "MTU", "NAT", "NAT-PMP", "NO-CARRIER", "PCP", "PEM", "PTR", "RBAC", "SRV", "STUN", "SIGHUP", "TCP", "TLS", "TURN", "TXT", "UDP", "URL", "UTC"}

// A word in a fix that the reader has to replace is followed or preceded by what it stands for, at
// every place where the fix is read, with all values known and with none.
func TestPlaceholdersAreExplained(t *testing.T) {
	word := regexp.MustCompile(`\bIP:PORT\b|\b[A-Z][A-Z-]+[A-Z]\b`)
	for _, e := range Codes() {
		for _, p := range []Params{example(e.Code), {Peer: "cloud"}, {}} {
			for _, at := range []struct{ inbound, heard, direct bool }{{}, {inbound: true}, {inbound: true, heard: true}, {direct: true}} {
				p.Inbound, p.Heard, p.Direct = at.inbound, at.heard, at.direct
				_, fix := render(e.Code, p)
				for _, w := range word.FindAllString(fix, -1) {
					if slices.Contains(literal, w) || regexp.MustCompile(`\b`+w+`( here)? (is|are) `).MatchString(fix) {
						continue
					}
					t.Errorf("%s, inbound %v, heard %v, direct %v, peer %q: %s is not explained: %s", e.Code, at.inbound, at.heard, at.direct, p.Peer, w, fix)
				}
			}
		}
	}
}
