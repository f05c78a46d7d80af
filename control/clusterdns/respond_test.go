package clusterdns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

var self = netip.MustParseAddr("10.244.0.9")

// shop is a zone with a service of either type.
func shop() *Zone {
	addr := netip.MustParseAddr
	http, echo := Port{Name: "http", Protocol: "TCP", Number: 80}, Port{Name: "echo", Protocol: "UDP", Number: 9000}
	db := Service{Namespace: "shop", Name: "db", Headless: true}
	for _, e := range []Endpoint{
		{Addr: addr("10.96.1.1"), Cluster: "cloud", Hostname: "db-0"}, {Addr: addr("fd00::"), Cluster: "cloud", Hostname: "db-0"},
		{Addr: addr("10.96.1.2"), Cluster: "Edge"}, {Addr: addr("fd01::"), Cluster: "Edge"}, {Addr: addr("10.96.1.3"), Cluster: "no.label", Hostname: "db-1"},
	} {
		e.Ports = []Port{{Name: "sql", Protocol: "TCP", Number: 5432}, {Protocol: "TCP", Number: 1}}
		db.Endpoints = append(db.Endpoints, e)
	}
	many := Service{Namespace: "shop", Name: "many", Headless: true}
	for n := range 200 {
		many.Endpoints = append(many.Endpoints, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 96, 2, byte(n)}), Cluster: "cloud", Ports: []Port{http}})
	}
	return NewZone([]Service{
		{Namespace: "shop", Name: "web", Addresses: []netip.Addr{addr("10.96.0.7"), addr("fd00::7")}, Ports: []Port{http, echo, {Protocol: "TCP", Number: 1}}},
		{Namespace: "shop", Name: "coming"}, {Namespace: "shop", Name: "idle", Headless: true}, db, many,
	}, time.Unix(1000, 0))
}

func exchange(t *testing.T, q *dns.Msg, by transport) *dns.Msg {
	t.Helper()
	wire, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	response, rcode := respond(wire, by, shop(), self)
	m := new(dns.Msg)
	if err := m.Unpack(response); err != nil {
		t.Fatalf("%v: %v", q, err)
	}
	if m.Rcode != rcode || m.Id != q.Id || !m.Response {
		t.Errorf("the response to %d is %d, with code %d, counted as %d", q.Id, m.Id, m.Rcode, rcode)
	}
	return m
}

// brief is what a response says: its code, or the data of its records in order.
func brief(m *dns.Msg) string {
	if len(m.Answer) == 0 {
		return dns.RcodeToString[m.Rcode]
	}
	var out []string
	for _, rr := range m.Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func TestNamesOfServices(t *testing.T) {
	for question, want := range map[string]string{
		"web.shop.svc A": "10.96.0.7", "web.shop.svc AAAA": "fd00::7", "WEB.sHoP.svc A": "10.96.0.7",
		"web.shop.svc TXT": "NOERROR", "web.shop.svc MX": "NOERROR", "web.shop.svc PTR": "NOERROR", "web.shop.svc CNAME": "NOERROR",
		"_http._tcp.web.shop.svc SRV": "0 1 80 web.shop.svc.clusterset.local.", "_echo._udp.web.shop.svc SRV": "0 1 9000 web.shop.svc.clusterset.local.",
		"_echo._tcp.web.shop.svc SRV": "NXDOMAIN", "_._tcp.web.shop.svc SRV": "NXDOMAIN", "http._tcp.web.shop.svc SRV": "NXDOMAIN",
		"_tcp.web.shop.svc SRV":     "NOERROR",
		"db-0.cloud.web.shop.svc A": "NXDOMAIN", "x.web.shop.svc A": "NXDOMAIN", "*.shop.svc A": "NXDOMAIN", "other.shop.svc A": "NXDOMAIN", "web.other.svc A": "NXDOMAIN",
		"coming.shop.svc A": "NOERROR", "idle.shop.svc A": "NXDOMAIN",
		"db.shop.svc A": "10.96.1.1, 10.96.1.2, 10.96.1.3", "db.shop.svc AAAA": "fd00::, fd01::",
		"db-0.cloud.db.shop.svc A": "10.96.1.1", "db-0.cloud.db.shop.svc AAAA": "fd00::", "db-0.edge.db.shop.svc A": "NXDOMAIN", "cloud.db.shop.svc A": "NOERROR",
		"10-96-1-2.edge.db.shop.svc A": "10.96.1.2", "fd01--0.EDGE.db.shop.svc AAAA": "fd01::", "db-1.no.label.db.shop.svc A": "NXDOMAIN",
		"_sql._tcp.db.shop.svc SRV": "0 1 5432 10-96-1-2.Edge.db.shop.svc.clusterset.local., 0 1 5432 db-0.cloud.db.shop.svc.clusterset.local., 0 1 5432 fd01--0.Edge.db.shop.svc.clusterset.local.",
		"shop.svc A":                "NOERROR", "none.svc A": "NXDOMAIN", "svc A": "NOERROR", "pod A": "NXDOMAIN", "dns A": "NOERROR",
		"ns.dns A": "10.244.0.9", "ns.dns AAAA": "NOERROR", "x.ns.dns A": "NXDOMAIN", "dns-version TXT": `"1.0.0"`, "dns-version A": "NOERROR",
		" NS": "ns.dns.clusterset.local.", " SOA": "ns.dns.clusterset.local. hostmaster.clusterset.local. 1000 7200 1800 86400 5", " A": "NOERROR",
		"web.shop.svc ANY": `"RFC8482" ""`, "none.svc ANY": "NXDOMAIN", " AXFR": "REFUSED", " IXFR": "REFUSED",
	} {
		name, kind, _ := strings.Cut(question, " ")
		q := new(dns.Msg).SetQuestion(strings.TrimPrefix(name+"."+Domain, "."), dns.StringToType[kind])
		m := exchange(t, q, byTCP)
		if got := brief(m); got != want {
			t.Errorf("%s: got %s, want %s", question, got, want)
		}
		if m.Question[0] != q.Question[0] {
			t.Errorf("%s: the question is given back as %v", question, m.Question[0])
		}
		for _, rr := range m.Answer {
			if ttl := rr.Header().Ttl; rr.Header().Name != q.Question[0].Name || kind != "TXT" && kind != "ANY" && ttl != 5 {
				t.Errorf("%s: the answer is %v", question, rr)
			}
		}
		if soa := len(m.Ns) == 1 && m.Ns[0].Header().Rrtype == dns.TypeSOA; soa != (len(m.Answer) == 0 && want != "REFUSED") {
			t.Errorf("%s: the authority is %v", question, m.Ns)
		}
	}
}

// Resolvers that vary the case of letters want all of them back as they were.
func TestLettersKeepTheirCase(t *testing.T) {
	m := exchange(t, new(dns.Msg).SetQuestion("_Sql._tCp.DB.shop.SVC.clusterSET.local.", dns.TypeSRV), byTCP)
	if len(m.Answer) != 3 || len(m.Extra) != 4 || !strings.HasSuffix(m.Answer[0].(*dns.SRV).Target, ".db.shop.svc.clusterSET.local.") {
		t.Errorf("got %v", m)
	}
}

func TestOtherQuestionsAreRefused(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*dns.Msg)
		want   int
	}{
		"another zone":    {func(m *dns.Msg) { m.Question[0].Name = "example.com." }, dns.RcodeRefused},
		"the root":        {func(m *dns.Msg) { m.Question[0].Name = "." }, dns.RcodeRefused},
		"a similar zone":  {func(m *dns.Msg) { m.Question[0].Name = "aclusterset.local." }, dns.RcodeRefused},
		"reverse":         {func(m *dns.Msg) { m.SetQuestion("7.0.96.10.in-addr.arpa.", dns.TypePTR) }, dns.RcodeRefused},
		"another class":   {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		"a notification":  {func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeNotImplemented},
		"an update":       {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		"two questions":   {func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, dns.RcodeFormatError},
		"no question":     {func(m *dns.Msg) { m.Question = nil }, dns.RcodeFormatError},
		"with an answer":  {func(m *dns.Msg) { m.Answer = []dns.RR{&dns.NULL{Hdr: header(".", dns.TypeNULL, 0)}} }, dns.RcodeFormatError},
		"a newer EDNS":    {func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
		"the right thing": {func(m *dns.Msg) {}, dns.RcodeSuccess},
	} {
		q := new(dns.Msg).SetQuestion("web.shop.svc."+Domain, dns.TypeA)
		c.change(q)
		if m := exchange(t, q, byUDP); m.Rcode != c.want || m.Rcode != dns.RcodeSuccess && len(m.Answer) > 0 {
			t.Errorf("%s: got %v, want code %d", what, m, c.want)
		}
	}
	if response, _ := respond(make([]byte, headerSize-1), byUDP, shop(), self); response != nil {
		t.Error("half a header has an answer")
	}
	wire, err := new(dns.Msg).SetReply(new(dns.Msg).SetQuestion("web.shop.svc."+Domain, dns.TypeA)).Pack()
	if err != nil {
		t.Fatal(err)
	}
	if response, _ := respond(wire, byUDP, shop(), self); response != nil {
		t.Error("a response has an answer: two servers may answer each other for ever")
	}
	wire[2] &^= 0x80
	if _, rcode := respond(wire, byUDP, nil, self); rcode != dns.RcodeServerFailure {
		t.Errorf("a zone that is not known has the code %d", rcode)
	}
}

// By UDP nothing is longer than the asker takes, nor than 1,232 bytes; by TCP it is whole.
func TestLongAnswersAreTruncated(t *testing.T) {
	for says, most := range map[uint16]int{0: 512, 100: 512, 600: 600, 65535: maxUDP} {
		q := new(dns.Msg).SetQuestion("many.shop.svc."+Domain, dns.TypeA)
		if says > 0 {
			q.SetEdns0(says, true)
		}
		m := exchange(t, q, byUDP)
		m.Compress = true
		if n := m.Len(); !m.Truncated || n > most || n < most/2 {
			t.Errorf("to one that takes %d bytes, %d are sent; truncated: %v", says, n, m.Truncated)
		}
		if o := m.IsEdns0(); (o != nil) != (says > 0) || o != nil && (o.UDPSize() != maxUDP || !o.Do()) {
			t.Errorf("to one that takes %d bytes, options are %v", says, o)
		}
		if m := exchange(t, q, byTCP); m.Truncated || len(m.Answer) != 200 {
			t.Errorf("by TCP there are %d answers; truncated: %v", len(m.Answer), m.Truncated)
		}
	}
}

// Whatever comes, what goes out is a response, no longer than is allowed, of this zone.
func FuzzRespond(f *testing.F) {
	for _, q := range []struct {
		name string
		kind uint16
	}{{"web.shop.svc." + Domain, dns.TypeA}, {"_sql._tcp.db.shop.svc." + Domain, dns.TypeSRV}, {"many.shop.svc." + Domain, dns.TypeANY}, {Domain, dns.TypeNS}, {"example.com.", dns.TypeA}} {
		m := new(dns.Msg).SetQuestion(q.name, q.kind)
		for range 2 {
			wire, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(wire)
			m.SetEdns0(4096, true)
		}
	}
	zone := shop()
	f.Fuzz(func(t *testing.T, query []byte) {
		for _, by := range []transport{byUDP, byTCP} {
			response, rcode := respond(query, by, zone, self)
			if response == nil {
				continue
			}
			if _, known := dns.RcodeToString[rcode]; !known || !slices.Contains(counted, rcode) {
				t.Errorf("the code %d is not counted", rcode)
			}
			if by == byUDP && len(response) > maxUDP {
				t.Errorf("%d bytes are sent by UDP", len(response))
			}
			var m dns.Msg
			if err := m.Unpack(response); err != nil {
				t.Fatalf("%x has the response %x: %v", query, response, err)
			}
			if !m.Response || m.Id != uint16(query[0])<<8|uint16(query[1]) {
				t.Errorf("%x has the response %v", query, &m)
			}
			for _, rr := range slices.Concat(m.Answer, m.Ns) {
				if !dns.IsSubDomain(Domain, rr.Header().Name) {
					t.Errorf("%v is not ours", rr)
				}
			}
		}
	})
}

// Whoever may write EndpointSlices must not make one question take the time of thousands.
func TestAQuestionLooksAtSoManyNames(t *testing.T) {
	var ports []Port
	for n := range 20000 { // as many as an EndpointSlice may have
		ports = append(ports, Port{fmt.Sprint("p-", n), "TCP", uint16(n)})
	}
	s := Service{Namespace: "shop", Name: "db", Headless: true, Ports: ports}
	for n := range 2 * maxEndpoints {
		s.Endpoints = append(s.Endpoints, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), Cluster: "east", Ports: ports})
	}
	z := NewZone([]Service{s}, time.Now())
	for name, want := range map[string][2]int{ // addresses, and records of services
		"": {maxEndpoints, 0}, "10-1-0-1.east.": {1, maxPorts}, "_p-1._tcp.": {maxEndpoints, maxEndpoints}, "_tcp.": {0, 0}, "_p-64._tcp.": {0, 0}, "nobody.": {0, 0},
	} {
		for i, kind := range []uint16{dns.TypeA, dns.TypeSRV} {
			found := z.find(dns.Question{Name: name + "db.shop.svc." + Domain, Qtype: kind}, netip.Addr{})
			if n := len(found.records); n != want[i] && (name != "" || kind == dns.TypeA) || n+len(found.more) > maxRecords {
				t.Errorf("%s has %d records of type %d, want %d, and %d more", name, n, kind, want[i], len(found.more))
			}
		}
	}
	// For an address no port is looked at.
	names := 0
	for i := range z.services["shop"]["db"].instances() {
		for range i.owners(nil) {
			names++
		}
	}
	if names != maxEndpoints {
		t.Errorf("%d names are looked at, want %d", names, maxEndpoints)
	}
}
