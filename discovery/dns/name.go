package dnssd

import (
	"strings"

	"github.com/miekg/dns"
)

// service is the service that is browsed.
const service = "_postern._udp."

// fold converts a name to the form in which names are compared.
func fold(name string) string { return strings.ToLower(dns.Fqdn(name)) }

// shown returns a name for people: without the last dot.
func shown(name string) string {
	if name == "." {
		return name
	}
	return strings.TrimSuffix(name, ".")
}

// instanceLabel returns the label of an instance's full name; false if the name is not an
// instance's. The name is in the presentation form of RFC 1035 §5.1.
func instanceLabel(name string) (label string, ok bool) {
	labels := dns.SplitDomainName(name)
	if len(labels) < 4 || !strings.EqualFold(labels[1]+"."+labels[2]+".", service) {
		return "", false
	}
	return unescaped(labels[0])
}

// unescaped decodes \X and \DDD.
func unescaped(label string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(label); i++ {
		c := label[i]
		if c != '\\' {
			b.WriteByte(c)
			continue
		}
		if i++; i == len(label) {
			return "", false
		}
		if c = label[i]; !digit(c) {
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(label) || !digit(label[i+1]) || !digit(label[i+2]) {
			return "", false
		}
		n := int(c-'0')*100 + int(label[i+1]-'0')*10 + int(label[i+2]-'0')
		if n > 255 {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), b.Len() > 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
