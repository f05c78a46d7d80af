package clusterdns

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/miekg/dns"
)

const (
	headerSize = 12
	// maxQuery is how long one may be: a name has 255 bytes, and options are few.
	maxQuery = 2048
	// maxUDP is what passes every path in one piece (RFC 9715), whatever a resolver says it takes.
	maxUDP = 1232
)

// Bits of a header's flags.
const (
	flagResponse  = 1 << 15
	flagTruncated = 1 << 9
	flagRecursion = 1 << 8 // desired; the response repeats it
	opcodeShift   = 11
	opcodeMask    = 0xf
)

// transport is how a query came.
type transport int

const (
	byUDP transport = iota
	byTCP
)

// limit is how long a response may be. o is what the query says of that; nil if it says nothing.
func (t transport) limit(o *dns.OPT) int {
	switch {
	case t == byTCP:
		return dns.MaxMsgSize
	case o == nil:
		return dns.MinMsgSize
	}
	return min(max(int(o.UDPSize()), dns.MinMsgSize), maxUDP)
}

// respond answers a query. The response is nil for what nobody expects one to. A nil zone is one that
// is not known yet.
func respond(query []byte, t transport, z *Zone, self netip.Addr) (response []byte, rcode int) {
	if len(query) < headerSize || len(query) > maxQuery {
		return nil, 0
	}
	word := func(n int) uint16 { return binary.BigEndian.Uint16(query[2*n:]) }
	flags := word(1)
	if flags&flagResponse != 0 {
		return nil, 0
	}
	var q dns.Msg
	m := new(dns.Msg)
	switch opcode := int(flags >> opcodeShift & opcodeMask); {
	case opcode != dns.OpcodeQuery:
		m.Opcode, m.Rcode = opcode, dns.RcodeNotImplemented
	case word(2) != 1 || word(3) != 0 || word(4) != 0 || word(5) > 2 || q.Unpack(query) != nil || len(q.Question) != 1:
		m.Rcode = dns.RcodeFormatError
	default:
		answerTo(m, &q, z, self)
	}
	m.Id, m.Response, m.Compress = word(0), true, true
	m.Truncate(t.limit(q.IsEdns0()))
	response, err := m.Pack()
	if err != nil { // a name that is too long with the service's before it
		m.Answer, m.Ns, m.Rcode = nil, nil, dns.RcodeServerFailure
		m.Extra = slices.DeleteFunc(m.Extra, func(rr dns.RR) bool { return rr.Header().Rrtype != dns.TypeOPT })
		if response, err = m.Pack(); err != nil {
			return nil, 0
		}
	}
	return response, m.Rcode
}

// elsewhere is the response to a query by UDP that is one too many: the question, and that the answer
// must be fetched by TCP, where nobody forges an address. It is no longer than the query, so that nobody
// is sent more in another's name.
func elsewhere(query []byte) []byte {
	if len(query) < headerSize || len(query) > maxQuery {
		return nil
	}
	flags := binary.BigEndian.Uint16(query[2:])
	if flags&flagResponse != 0 || binary.BigEndian.Uint32(query[6:]) != 0 { // it has answers
		return nil
	}
	response := slices.Clone(query)
	binary.BigEndian.PutUint16(response[2:], flags&(opcodeMask<<opcodeShift|flagRecursion)|flagResponse|flagTruncated)
	return response
}

// answerTo makes the answer m to a question.
func answerTo(m, q *dns.Msg, z *Zone, self netip.Addr) {
	m.SetReply(q)
	o := q.IsEdns0()
	if o != nil {
		m.SetEdns0(maxUDP, o.Do())
	}
	question := q.Question[0]
	switch {
	case o != nil && o.Version() != 0:
		m.Rcode = dns.RcodeBadVers
		return
	case question.Qclass != dns.ClassINET, question.Qtype == dns.TypeAXFR, question.Qtype == dns.TypeIXFR, !dns.IsSubDomain(Domain, question.Name):
		m.Rcode = dns.RcodeRefused
		return
	case z == nil:
		m.Rcode = dns.RcodeServerFailure
		return
	}
	found := z.find(question, self)
	m.Authoritative, m.Answer, m.Extra = true, found.records, append(found.more, m.Extra...)
	switch {
	case !found.exists:
		m.Rcode = dns.RcodeNameError
	case question.Qtype == dns.TypeANY: // RFC 8482
		m.Answer = []dns.RR{&dns.HINFO{Hdr: header(question.Name, dns.TypeHINFO, schemaTTL), Cpu: "RFC8482"}}
	}
	if len(m.Answer) == 0 {
		m.Ns = []dns.RR{z.soa(zoneOf(question.Name))}
	}
}
