package dnssd

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Way is one way to a gateway, as a zone should contain it.
type Way struct {
	// Target is the name of a host that already has address records; empty if records are written
	// for Addrs.
	Target string
	Addrs  []netip.Addr
	Port   uint16
}

// Zone describes the records by which a gateway is found in DNS.
type Zone struct {
	// Domain is the domain; empty writes names relative to the zone that the lines are put into.
	Domain string
	// Instance is the gateway's name, Host that of its addresses: one label or, with dots, a full
	// name. An empty Host is "postern-" and the instance's name.
	Instance, Host string
	Key            peer.PublicKey
	Capabilities   []string
	// Ways are in the order in which to try them.
	Ways []Way
	TTL  time.Duration
}

// Lines returns the records in the format of zone files (RFC 1035 §5.1).
func (z Zone) Lines() ([]string, error) {
	if z.Domain != "" {
		if err := CheckDomain(z.Domain); err != nil {
			return nil, err
		}
	}
	browsed := z.name(strings.TrimSuffix(service, "."))
	instance := z.name(z.Instance + "." + strings.TrimSuffix(service, "."))
	out := []string{z.line(browsed, "PTR", instance)}
	var addresses []string
	for n, w := range z.Ways {
		target := absolute(w.Target)
		if w.Target == "" {
			host := z.host(n)
			target = host
			for _, a := range w.Addrs {
				addresses = append(addresses, z.line(host, addressType(a), a.String()))
			}
		}
		out = append(out, z.line(instance, "SRV", fmt.Sprintf("%d 0 %d %s", 10*(n+1), w.Port, target)))
	}
	var quoted []string
	for _, s := range writeText(z.Key, z.Capabilities) {
		quoted = append(quoted, `"`+s+`"`)
	}
	out = append(out, z.line(instance, "TXT", strings.Join(quoted, " ")))
	return append(out, addresses...), nil
}

// Outside reports whether the host is in no zone of the domain. Then that zone's operator must
// add its addresses.
func (z Zone) Outside() bool {
	if !strings.Contains(z.Host, ".") {
		return false
	}
	return z.Domain == "" || fold(z.Host) != fold(z.Domain) && !strings.HasSuffix(fold(z.Host), "."+fold(z.Domain))
}

// host returns the name of a way's host. Each way needs its own name, since the ports differ.
func (z Zone) host(n int) string {
	label := z.Host
	if label == "" {
		label = "postern-" + z.Instance
	}
	if n > 0 {
		first, rest, dotted := strings.Cut(label, ".")
		label = fmt.Sprintf("%s-%d", first, n+1)
		if dotted {
			label += "." + rest
		}
	}
	if strings.Contains(label, ".") {
		return absolute(label)
	}
	return z.name(label)
}

func (z Zone) name(relative string) string {
	if z.Domain == "" {
		return relative
	}
	return relative + "." + absolute(strings.ToLower(z.Domain))
}

func (z Zone) line(name, rtype, data string) string {
	return fmt.Sprintf("%s %d IN %s %s", name, int(z.TTL/time.Second), rtype, data)
}

func absolute(name string) string { return strings.TrimSuffix(name, ".") + "." }

func addressType(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "A"
	}
	return "AAAA"
}

// Ways groups addresses by their ports, in the order in which the ports first occur.
func Ways(addrs []netip.AddrPort) []Way {
	var out []Way
	for _, a := range addrs {
		n := slices.IndexFunc(out, func(w Way) bool { return w.Port == a.Port() && w.Target == "" })
		if n < 0 {
			n = len(out)
			out = append(out, Way{Port: a.Port()})
		}
		if !slices.Contains(out[n].Addrs, a.Addr().Unmap()) {
			out[n].Addrs = append(out[n].Addrs, a.Addr().Unmap())
		}
	}
	return out
}
