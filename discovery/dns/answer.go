package dnssd

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// A record set is queried again within these limits, whatever its TTL.
	minTTL = 5 * time.Second
	maxTTL = time.Hour
	// negativeTTL is for servers that do not say how long a negative answer is valid: without a
	// SOA record it should not be cached (RFC 2308 §5).
	negativeTTL = 15 * time.Second
	// maxAliases limits the aliases that are followed in a row.
	maxAliases = 8
)

// question is a name, in the form in which names are compared, and a type.
type question struct {
	name  string
	rtype uint16
}

func (q question) String() string { return dns.TypeToString[q.rtype] + " " + shown(q.name) }

// answer is a server's answer. No records means that there are none.
type answer struct {
	records []dns.RR // of the queried type
	// missing is whether the name does not exist at all.
	missing bool
	// alias is the target of the queried name's alias, if the server did not follow it; empty if
	// there is nothing left to query.
	alias string
	// validated is whether the resolver has validated the answer.
	validated bool
	ttl       time.Duration
	from      netip.AddrPort
}

// same reports whether two answers have the same records, whatever their times to live.
func (a answer) same(b answer) bool {
	if len(a.records) != len(b.records) || a.alias != b.alias {
		return false
	}
	for _, rr := range a.records {
		if !slices.ContainsFunc(b.records, func(o dns.RR) bool { return dns.IsDuplicate(rr, o) }) {
			return false
		}
	}
	return true
}

// unpack parses the answer to a question with an id. For anything else the error is errMessage.
func unpack(packet []byte, id uint16, q question) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(packet); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	if !m.Response || m.Id != id || m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 {
		return nil, errMessage
	}
	if asked := m.Question[0]; fold(asked.Name) != q.name || asked.Qtype != q.rtype || asked.Qclass != dns.ClassINET {
		return nil, errMessage
	}
	return m, nil
}

// read extracts the answer to a question from a message: the records at the end of the aliases.
// The error is that of a server that cannot answer, or of records that lead nowhere, which
// servers may report as their own failure.
func read(m *dns.Msg, q question) (answer, error) {
	failed := m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError
	a := answer{validated: m.AuthenticatedData, missing: m.Rcode == dns.RcodeNameError, ttl: maxTTL}
	name := q.name
	seen := []string{name}
	for {
		alias := ""
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class != dns.ClassINET || fold(h.Name) != name {
				continue
			}
			switch c, is := rr.(*dns.CNAME); {
			case h.Rrtype == q.rtype:
				a.records = append(a.records, rr)
			case is && alias == "":
				alias = fold(c.Target)
			default:
				continue
			}
			a.ttl = min(a.ttl, time.Duration(h.Ttl)*time.Second)
		}
		if len(a.records) > 0 {
			a.missing = false
			break
		}
		if alias == "" && failed {
			break
		}
		if alias == "" {
			a.negative(m, name, name != q.name)
			break
		}
		if slices.Contains(seen, alias) || len(seen) > maxAliases {
			return answer{}, aliasError{q, append(seen, alias)}
		}
		seen = append(seen, alias)
		name = alias
	}
	if failed {
		return answer{}, refusal(m)
	}
	a.ttl = min(max(a.ttl, minTTL), maxTTL)
	return a, nil
}

// negative completes an answer without records. Either there are none, for as long as the zone's
// SOA record says, or the server did not follow the alias.
func (a *answer) negative(m *dns.Msg, name string, alias bool) {
	for _, rr := range m.Ns {
		if soa, is := rr.(*dns.SOA); is {
			a.ttl = min(a.ttl, time.Duration(min(soa.Hdr.Ttl, soa.Minttl))*time.Second)
			return
		}
	}
	if alias && !a.missing {
		a.alias = name
		return
	}
	a.ttl = min(a.ttl, negativeTTL)
}

// aliasError is a loop of aliases, or too many in a row. Another server would not help.
type aliasError struct {
	q     question
	names []string
}

func (e aliasError) Error() string {
	var list []string
	for _, n := range e.names {
		list = append(list, shown(n))
	}
	chain := strings.Join(list, " → ")
	if slices.Contains(e.names[:len(e.names)-1], e.names[len(e.names)-1]) {
		return "the aliases (CNAME) lead in a circle: " + chain
	}
	return fmt.Sprintf("more than %d aliases (CNAME) in a row: %s", maxAliases, chain)
}

// serverError is a server's error response.
type serverError struct {
	rcode int
	info  string // from its extended error
}

func (e serverError) Error() string {
	what := dns.RcodeToString[e.rcode]
	if what == "" {
		what = fmt.Sprintf("error code %d", e.rcode)
	}
	if e.info != "" {
		what += " (" + e.info + ")"
	}
	return "answers " + what
}

// refusal returns the error that a message reports: errBogus if validation is known to have
// failed (RFC 8914 §4.7 to §4.13).
func refusal(m *dns.Msg) error {
	e := serverError{rcode: m.Rcode}
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			ede, is := o.(*dns.EDNS0_EDE)
			if !is {
				continue
			}
			e.info = dns.ExtendedErrorCodeToString[ede.InfoCode]
			if ede.InfoCode >= dns.ExtendedErrorCodeDNSBogus && ede.InfoCode <= dns.ExtendedErrorCodeNSECMissing {
				return fmt.Errorf("%w: %w", errBogus, e)
			}
		}
	}
	return e
}

// isServfail reports whether a server failed without giving a reason.
func isServfail(err error) bool {
	var e serverError
	return errors.As(err, &e) && e.rcode == dns.RcodeServerFailure && !errors.Is(err, errBogus)
}
