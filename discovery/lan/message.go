package lan

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// topBit of a question's class requests a unicast answer (RFC 6762 §5.4). In a record's class
	// it replaces others of its name and type (§10.2).
	topBit = 1 << 15
	// maxQuestions and maxRecords limit what is read of a message: more than the relevant ones
	// that fit one Ethernet frame.
	maxQuestions = 32
	maxRecords   = 256
	// maxSend is the largest message sent, in bytes: it fits a frame with IPv6 headers (RFC 6762
	// §17).
	maxSend = 1440
)

// maxBelieved limits how long a record is kept that nobody repeats, so that forged records expire
// soon. Records with a longer TTL are refreshed before.
const maxBelieved = 10 * time.Minute

var errMessage = errors.New("no message of multicast DNS")

// parse parses a message. Opcodes and error codes other than 0 must be ignored (RFC 6762 §18.3,
// §18.11).
func parse(packet []byte) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(packet); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	if m.Opcode != dns.OpcodeQuery || m.Rcode != dns.RcodeSuccess {
		return nil, errMessage
	}
	m.Question = m.Question[:min(len(m.Question), maxQuestions)]
	left := maxRecords
	for _, section := range []*[]dns.RR{&m.Answer, &m.Ns, &m.Extra} {
		*section = (*section)[:min(len(*section), left)]
		left -= len(*section)
	}
	return m, nil
}

// isIN reports whether a record is of the internet's class, whatever its top bit.
func isIN(rr dns.RR) bool { return rr.Header().Class&^topBit == dns.ClassINET }

// flushes reports whether a record replaces others of its name and type.
func flushes(rr dns.RR) bool { return rr.Header().Class&topBit != 0 }

// recordKey identifies a record set: a name in the form in which names are compared, and a type.
type recordKey struct {
	name  string
	rtype uint16
}

func keyOf(rr dns.RR) recordKey { return recordKey{fold(rr.Header().Name), rr.Header().Rrtype} }

// value returns a record's data in a comparable form, for the types that matter here.
func value(rr dns.RR) string {
	switch r := rr.(type) {
	case *dns.PTR:
		return fold(r.Ptr)
	case *dns.SRV:
		return fmt.Sprintf("%d %d %d %s", r.Priority, r.Weight, r.Port, fold(r.Target))
	case *dns.TXT:
		var b strings.Builder
		for _, s := range r.Txt {
			fmt.Fprintf(&b, "%d:%s", len(s), s)
		}
		return b.String()
	case *dns.A:
		return r.A.String()
	case *dns.AAAA:
		return r.AAAA.String()
	}
	return rr.String()
}

// sameRecord compares name, type and data.
func sameRecord(a, b dns.RR) bool { return keyOf(a) == keyOf(b) && value(a) == value(b) }

// address returns the address of an A or AAAA record; invalid for others.
func address(rr dns.RR) netip.Addr {
	var a netip.Addr
	switch r := rr.(type) {
	case *dns.A:
		a, _ = netip.AddrFromSlice(r.A)
	case *dns.AAAA:
		a, _ = netip.AddrFromSlice(r.AAAA)
	}
	return a.Unmap()
}

// ttlOf returns a record's TTL, limited to maxBelieved.
func ttlOf(rr dns.RR) time.Duration {
	return min(time.Duration(rr.Header().Ttl)*time.Second, maxBelieved)
}

// wire returns a record's data in wire format, uncompressed.
func wire(rr dns.RR) []byte {
	c := dns.Copy(rr)
	c.Header().Name = "." // a header of known length: name, type, class, TTL and length
	const header = 1 + 2 + 2 + 4 + 2
	b := make([]byte, dns.Len(c)+header)
	n, err := dns.PackRR(c, b, 0, nil, false)
	if err != nil || n < header {
		return nil
	}
	return b[header:n]
}

// pack encodes a message; nil if that fails, which only a name can cause.
func pack(m *dns.Msg) []byte {
	m.Compress = true
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// withTTL returns a copy of a record with another TTL.
func withTTL(rr dns.RR, ttl time.Duration) dns.RR {
	c := dns.Copy(rr)
	c.Header().Ttl = uint32(ttl / time.Second)
	return c
}
