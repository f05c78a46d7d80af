package clusterdns

import (
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Domain is the clusterset's, as the KEP has it.
const Domain = "clusterset.local."

const (
	// ttl is that of CoreDNS' plugin kubernetes, of negative answers too.
	ttl = 5 * time.Second
	// schema is the version of the specification, for as long as it says.
	schema    = "1.0.0"
	schemaTTL = 28800 * time.Second
	// maxEndpoints bounds those of a service, maxPorts the ports of each and of a service, and
	// maxRecords those of an answer: whoever may write EndpointSlices, of 20,000 ports each, says how
	// many there are, and all endpoints are looked at for each question. More do not fit into a message.
	maxEndpoints, maxPorts, maxRecords = 1000, 64, 4096
)

// Service is one that is imported.
type Service struct {
	Namespace, Name string
	// Headless has its endpoints' addresses, another Addresses.
	Headless  bool
	Addresses []netip.Addr
	// Ports are those of Addresses.
	Ports []Port
	// Endpoints are the ready ones of a headless service.
	Endpoints []Endpoint
}

// Endpoint is a backend of a headless service.
type Endpoint struct {
	Addr netip.Addr
	// Cluster is its cluster's name, Hostname its own, which is one made of the address if empty.
	Cluster, Hostname string
	Ports             []Port
}

// Port of a service. One without a name has no SRV record.
type Port struct {
	Name string
	// Protocol is TCP, UDP or SCTP.
	Protocol string
	Number   uint16
}

// Zone is what is imported at one moment. It is not changed, and safe for concurrent use.
type Zone struct {
	services map[string]map[string]Service // by namespace and name
	serial   uint32
}

// NewZone is the zone of these services, whose names are in lower case, as it was made at a time.
func NewZone(services []Service, made time.Time) *Zone {
	z := &Zone{services: map[string]map[string]Service{}, serial: uint32(made.Unix())}
	for _, s := range services {
		s.Endpoints = slices.Clone(s.Endpoints[:min(len(s.Endpoints), maxEndpoints)])
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			e.Hostname, e.Ports = e.hostname(), e.Ports[:min(len(e.Ports), maxPorts)]
		}
		s.Ports = s.Ports[:min(len(s.Ports), maxPorts)]
		if z.services[s.Namespace] == nil {
			z.services[s.Namespace] = map[string]Service{}
		}
		z.services[s.Namespace][s.Name] = s
	}
	return z
}

// labels of a name below the service's, the outermost first.
type labels []string

// has reports whether l ends in the labels of another.
func (l labels) has(end labels) bool {
	if len(end) > len(l) {
		return false
	}
	for i, label := range l[len(l)-len(end):] {
		if !strings.EqualFold(label, end[i]) {
			return false
		}
	}
	return true
}

// instance is an address of a service, and what else is known at the same name.
type instance struct {
	name  labels     // empty for the service's own
	named bool       // it can be a target of SRV records
	addr  netip.Addr // the zero Addr has no records
	ports []Port
}

// instances of a service.
func (s Service) instances() iter.Seq[instance] {
	return func(yield func(instance) bool) {
		if !s.Headless {
			for _, a := range s.Addresses {
				if !yield(instance{named: true, addr: a, ports: s.Ports}) {
					return
				}
			}
			if len(s.Addresses) == 0 { // they are yet to come
				yield(instance{ports: s.Ports})
			}
			return
		}
		for _, e := range s.Endpoints {
			i := instance{addr: e.Addr, ports: e.Ports}
			if e.Cluster != "" && !strings.Contains(e.Cluster, ".") {
				i.name, i.named = labels{e.Hostname, e.Cluster}, true
			}
			if !yield(i) {
				return
			}
		}
	}
}

// hostname is as CoreDNS has it.
func (e Endpoint) hostname() string {
	if e.Hostname != "" {
		return e.Hostname
	}
	made := strings.NewReplacer(".", "-", ":", "-").Replace(e.Addr.String())
	if strings.HasSuffix(made, "-") {
		made += "0"
	}
	return made
}

// owners are the names at which an instance is found that end in some labels, and the ports that are
// meant there. The service's own name stands for all that end in none.
func (i instance) owners(end labels) iter.Seq2[labels, []Port] {
	return func(yield func(labels, []Port) bool) {
		if len(end) == 0 {
			yield(nil, i.ports)
			return
		}
		if i.name.has(end) && !yield(i.name, i.ports) || end[len(end)-1][0] != '_' {
			return
		}
		for n, p := range i.ports {
			if p.Name != "" && p.has(end) && !yield(labels{"_" + p.Name, "_" + p.Protocol}, i.ports[n:n+1]) {
				return
			}
		}
	}
}

// has reports whether the name of a port ends in the labels of another.
func (p Port) has(end labels) bool {
	is := func(label, name string) bool { return label[0] == '_' && strings.EqualFold(label[1:], name) }
	return is(end[len(end)-1], p.Protocol) && (len(end) == 1 || len(end) == 2 && is(end[0], p.Name))
}

// answer is what the zone has for a question.
type answer struct {
	// exists is that of the name: it has records, of whatever type, or there are names below it.
	exists        bool
	records, more []dns.RR
}

// find answers for a name, which is in the zone, and a type. Names are compared without regard to
// case, and those in the answer are in that of the question. self is our own address.
func (z *Zone) find(question dns.Question, self netip.Addr) answer {
	zone := zoneOf(question.Name)
	name := labels(dns.SplitDomainName(strings.TrimSuffix(question.Name, zone)))
	is := func(t uint16) bool { return question.Qtype == t }
	var out answer
	switch {
	case len(name) == 0:
		out.exists = true
		if is(dns.TypeSOA) {
			out.records = []dns.RR{z.soa(zone)}
		}
		if is(dns.TypeNS) {
			server := "ns.dns." + zone
			out.records = []dns.RR{&dns.NS{Hdr: header(question.Name, dns.TypeNS, ttl), Ns: server}}
			out.more = []dns.RR{address(server, self)}
		}
		return out
	case labels{"ns", "dns"}.has(name):
		out.exists = true
		if rr := address(question.Name, self); len(name) == 2 && is(rr.Header().Rrtype) {
			out.records = []dns.RR{rr}
		}
		return out
	case len(name) == 1 && name.has(labels{"dns-version"}):
		out.exists = true
		if is(dns.TypeTXT) {
			out.records = []dns.RR{&dns.TXT{Hdr: header(question.Name, dns.TypeTXT, schemaTTL), Txt: []string{schema}}}
		}
		return out
	case !name.has(labels{"svc"}):
		return out
	}
	return z.below(name[:len(name)-1], question)
}

// below answers for what is below svc, by the labels before that.
func (z *Zone) below(name labels, question dns.Question) answer {
	if len(name) == 0 {
		return answer{exists: true}
	}
	namespace := z.services[strings.ToLower(name[len(name)-1])]
	if name = name[:len(name)-1]; len(name) == 0 {
		return answer{exists: len(namespace) > 0}
	}
	s, ok := namespace[strings.ToLower(name[len(name)-1])]
	if !ok {
		return answer{}
	}
	return s.answer(name[:len(name)-1], question)
}

// said is a record without its owner: what several ports or addresses have in common is told once.
type said struct {
	kind   uint16
	target string
	addr   netip.Addr
	port   uint16
}

// answer answers for a service, or for a name below it.
func (s Service) answer(name labels, question dns.Question) (out answer) {
	own := s.Name + "." + s.Namespace + ".svc." + zoneOf(question.Name)
	seen := map[said]bool{}
	add := func(to *[]dns.RR, what said, rr func() dns.RR) {
		if !seen[what] && len(seen) < maxRecords {
			seen[what] = true
			*to = append(*to, rr())
		}
	}
	srv := func(i instance, ports []Port) {
		target := strings.Join(append(i.name[:len(i.name):len(i.name)], own), ".")
		for _, p := range ports {
			if p.Name == "" {
				continue
			}
			add(&out.records, said{kind: dns.TypeSRV, target: target, port: p.Number}, func() dns.RR {
				return &dns.SRV{Hdr: header(question.Name, dns.TypeSRV, ttl), Weight: 1, Port: p.Number, Target: target}
			})
			add(&out.more, said{kind: addressType(i.addr), target: target, addr: i.addr}, func() dns.RR { return address(target, i.addr) })
		}
	}
	for i := range s.instances() {
		if len(seen) == maxRecords {
			break
		}
		for owner, ports := range i.owners(name) {
			out.exists = true
			switch {
			case len(owner) != len(name) || !i.addr.IsValid(): // above it, or without records yet
			case question.Qtype == addressType(i.addr):
				add(&out.records, said{kind: question.Qtype, addr: i.addr}, func() dns.RR { return address(question.Name, i.addr) })
			case question.Qtype == dns.TypeSRV && i.named:
				srv(i, ports)
			}
		}
	}
	rand.Shuffle(len(out.records), func(a, b int) { out.records[a], out.records[b] = out.records[b], out.records[a] })
	return out
}

// zoneOf is the zone's name as it is written in one of its names.
func zoneOf(name string) string { return name[len(name)-len(Domain):] }

func header(owner string, kind uint16, life time.Duration) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: kind, Class: dns.ClassINET, Ttl: uint32(life / time.Second)}
}

// addressType is that of an address' record, A or AAAA.
func addressType(a netip.Addr) uint16 {
	if a.Is4() {
		return dns.TypeA
	}
	return dns.TypeAAAA
}

// address is the record of an address.
func address(owner string, a netip.Addr) dns.RR {
	if a.Is4() {
		return &dns.A{Hdr: header(owner, dns.TypeA, ttl), A: a.AsSlice()}
	}
	return &dns.AAAA{Hdr: header(owner, dns.TypeAAAA, ttl), AAAA: a.AsSlice()}
}

// soa is the record of the zone, whose name is written as it was asked for.
func (z *Zone) soa(zone string) dns.RR {
	return &dns.SOA{
		Hdr: header(zone, dns.TypeSOA, ttl), Ns: "ns.dns." + zone, Mbox: "hostmaster." + zone,
		Serial: z.serial, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: uint32(ttl / time.Second),
	}
}
