package dnssd

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/tunnel/peer"
)

var epoch = time.Unix(1_800_000_000, 0)

func keyOf(b byte) peer.PublicKey { return peer.PublicKey{0: b, 31: 1} }

// zoneText replaces PK1 and PK2 by keys, and OV1 by the first one's overlay address.
func zoneText(s string) string {
	return strings.NewReplacer("PK1", keyOf(1).String(), "PK2", keyOf(2).String(), "OV1", peer.OverlayAddr(keyOf(1)).String()).Replace(s)
}

const good = `
_postern._udp PTR cloud._postern._udp
cloud._postern._udp SRV 10 0 51820 gw
cloud._postern._udp TXT "v=1" "pk=PK1" "ov=OV1" "caps=a,b"
gw A 203.0.113.7
`

// browsed answers a machine's questions from a zone until it is complete.
func browsed(t *testing.T, m *machine, z *zoneServer, now time.Time) Domain {
	t.Helper()
	for range 100 {
		ask, _, d, complete := m.poll(now)
		if complete && len(ask) == 0 {
			return d
		}
		if len(ask) == 0 {
			t.Fatal("nothing is asked, and the domain is not complete")
		}
		for _, q := range ask {
			r := new(dns.Msg)
			r.SetQuestion(q.name, q.rtype)
			z.answer(r, r.Question[0])
			r.AuthenticatedData = z.ad
			a, err := read(r, q)
			m.answered(now, q, a, err)
		}
	}
	t.Fatal("the domain does not become complete")
	return Domain{}
}

func offline(t *testing.T, zone string) *zoneServer {
	z := &zoneServer{}
	z.set(t, zoneText(zone))
	return z
}

func refuseLoopback(a netip.AddrPort) string {
	if a.Addr().IsLoopback() {
		return "loopback"
	}
	return ""
}

func TestWhatAZoneSays(t *testing.T) {
	for _, c := range []struct {
		name      string
		zone      string
		addresses string // of the first instance
		problems  []string
	}{
		{"complete", good, "203.0.113.7:51820", nil},
		{"names in another case", strings.ToUpper(strings.Split(good, "cloud._postern._udp TXT")[0]) + `cloud._postern._udp TXT "V=1" "PK=PK1" "pk=none"` + "\ngw A 203.0.113.7", "203.0.113.7:51820", nil},
		{"IPv6 alone", strings.Replace(good, "A 203.0.113.7", "AAAA 2001:db8::7", 1), "[2001:db8::7]:51820", nil},
		{"both families", good + "gw AAAA 2001:db8::7", "[2001:db8::7]:51820 203.0.113.7:51820", nil},
		{"an alias for the host", strings.Replace(good, "gw A", "gw CNAME real\nreal A", 1), "203.0.113.7:51820", nil},
		{"an alias that leads out of the zone", strings.Replace(good, "gw A", "gw CNAME gw.example.net.\ngw.example.net. A", 1), "203.0.113.7:51820", nil},
		{"an alias for the records", `
_postern._udp PTR cloud._postern._udp
cloud._postern._udp CNAME b._postern._udp
b._postern._udp SRV 10 0 51820 gw
b._postern._udp TXT "v=1.3" "pk=PK1" "x=y"
gw A 203.0.113.7
`, "203.0.113.7:51820", nil},
		{"priorities", `
_postern._udp PTR cloud._postern._udp
cloud._postern._udp SRV 20 0 51820 b
cloud._postern._udp SRV 10 0 51821 a
cloud._postern._udp TXT "v=1" "pk=PK1"
a A 203.0.113.1
b A 203.0.113.2
`, "203.0.113.1:51821 203.0.113.2:51820", nil},
		{"no SRV", strings.Replace(good, "SRV 10 0 51820 gw", "HINFO a b", 1), "",
			[]string{"SRV cloud._postern._udp.example.com does not exist: nothing says where the gateway is"}},
		{"no TXT", strings.Replace(good, "TXT", "SPF", 1), "203.0.113.7:51820",
			[]string{"TXT cloud._postern._udp.example.com does not exist: nothing says what the gateway's public key is"}},
		{"no address", strings.Replace(good, "gw A 203.0.113.7", "gw HINFO a b", 1), "",
			[]string{"SRV cloud._postern._udp.example.com leads to gw.example.com, which has neither an A nor an AAAA record"}},
		{"no host", strings.Replace(good, "gw A", "other A", 1), "",
			[]string{"SRV cloud._postern._udp.example.com leads to gw.example.com, which does not exist"}},
		{"not there any more", strings.Replace(good, "SRV 10 0 51820 gw", "SRV 0 0 0 .", 1), "", []string{`has the target "."`}},
		{"port 0", strings.Replace(good, "51820", "0", 1), "", []string{"has port 0"}},
		{"an address for a target", strings.Replace(good, "51820 gw", "51820 203.0.113.7.", 1), "", []string{"has the address 203.0.113.7 for a target"}},
		{"no version", strings.Replace(good, `"v=1"`, "", 1), "203.0.113.7:51820", []string{"TXT cloud._postern._udp.example.com has no version"}},
		{"another version", strings.Replace(good, `"v=1"`, `"v=2"`, 1), "203.0.113.7:51820", []string{`has version "2", and this gateway understands 1`}},
		{"no key", strings.Replace(good, `"pk=PK1"`, "", 1), "203.0.113.7:51820", []string{"has no public key"}},
		{"a key that is none", strings.Replace(good, "pk=PK1", "pk=cloud", 1), "203.0.113.7:51820", []string{`has a public key that is none: pk="cloud"`}},
		{"a zero key", strings.Replace(good, "PK1", base64.StdEncoding.EncodeToString(make([]byte, 32)), 1), "203.0.113.7:51820", []string{"has a public key that is none"}},
		{"another's overlay address", strings.Replace(good, "OV1", "fd00::1", 1), "203.0.113.7:51820", []string{"has an overlay address that is not that of its key"}},
		{"two keys", good + `cloud._postern._udp TXT "v=1" "pk=PK2"`, "203.0.113.7:51820", []string{"are several records with different public keys"}},
		{"somebody else's TXT besides", good + `cloud._postern._udp TXT "v=spf1 -all"`, "203.0.113.7:51820", nil},
		{"a long TXT", good[:strings.Index(good, ` "caps`)] + strings.Repeat(` "`+strings.Repeat("x", 200)+`"`, 6) + "\ngw A 203.0.113.7", "203.0.113.7:51820",
			[]string{"has 1301 bytes, and at most 1024 are read"}},
		{"what must not be dialled", strings.Replace(good, "gw A", "gw A 127.0.0.1\ngw A", 1), "203.0.113.7:51820",
			[]string{"leads to gw.example.com at 127.0.0.1:51820, which is not dialled: loopback"}},
		{"aliases in a circle", strings.Replace(good, "gw A 203.0.113.7", "gw CNAME a\na CNAME gw", 1), "",
			[]string{"A gw.example.com cannot be followed: the aliases (CNAME) lead in a circle: gw.example.com → a.example.com → gw.example.com"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := browsed(t, newMachine("Example.COM.", nil, refuseLoopback), offline(t, c.zone), epoch)
			if len(d.Instances) != 1 || len(d.Problems) != 0 {
				t.Fatalf("got %+v, want one instance and no problems", d)
			}
			i := d.Instances[0]
			var got []string
			for _, a := range i.Addresses {
				got = append(got, a.Addr.String())
			}
			if strings.Join(got, " ") != c.addresses {
				t.Errorf("addresses %q, want %q", got, c.addresses)
			}
			if len(c.problems) == 0 && (!i.Usable() || i.Key != keyOf(1) || len(i.Problems) != 0) {
				t.Errorf("got %+v, want it usable without problems", i)
			}
			for _, want := range c.problems {
				if !slices.ContainsFunc(i.Problems, func(p Problem) bool { return p.Kind == Bad && strings.Contains(p.String(), want) }) {
					t.Errorf("problems %v, want one with %q", i.Problems, want)
				}
			}
		})
	}
}

func TestTheDomainItself(t *testing.T) {
	many := ""
	for n := range 70 {
		many += fmt.Sprintf("_postern._udp PTR g%02d._postern._udp\n", n)
	}
	for _, c := range []struct {
		name, zone string
		instances  int
		kind       Kind
		what       string
	}{
		{"empty", "", 0, Nothing, "PTR _postern._udp.example.com does not exist: no gateway is announced there"},
		{"only other records", "_postern._udp TXT hello", 0, Nothing, "does not exist"},
		{"another service", "_postern._udp PTR x._ssh._tcp", 0, Bad, `leads to "x._ssh._tcp.example.com", which is no instance of this service`},
		{"too many", many, maxInstances, Bad, "leads to 70 gateways; the first 64 by name are looked at"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := browsed(t, newMachine("example.com", nil, refuseLoopback), offline(t, c.zone), epoch)
			if len(d.Instances) != c.instances || len(d.Problems) != 1 || d.Problems[0].Kind != c.kind || !strings.Contains(d.Problems[0].String(), c.what) {
				t.Errorf("%d instances, problems %v; want %d and %q", len(d.Instances), d.Problems, c.instances, c.what)
			}
		})
	}
}

// TestManyRecordsAreBounded has a zone that would make us query for ever.
func TestManyRecordsAreBounded(t *testing.T) {
	zone := ""
	for n := range maxInstances {
		zone += fmt.Sprintf("_postern._udp PTR g%d._postern._udp\n", n)
		for w := range 20 {
			zone += fmt.Sprintf("g%d._postern._udp SRV 1 1 1 h%d-%d\n", n, n, w)
		}
	}
	m := newMachine("example.com", nil, refuseLoopback)
	d := browsed(t, m, offline(t, zone), epoch)
	if len(m.entries) > maxQuestions {
		t.Errorf("%d record sets are kept, want %d at most", len(m.entries), maxQuestions)
	}
	if len(d.Problems) != 1 || !strings.Contains(d.Problems[0].What.String(), "more than 512 record sets") {
		t.Errorf("problems %v, want the bound named", d.Problems)
	}
	if ask, _, _, _ := m.poll(epoch.Add(pace*maxQuestions - time.Second)); len(ask) != 0 {
		t.Errorf("%d questions are repeated sooner than ten a second", len(ask))
	}
}

// TestWhenItIsAskedAgain checks the refresh times of one gateway's records.
func TestWhenItIsAskedAgain(t *testing.T) {
	z := offline(t, `
_postern._udp 600 PTR cloud._postern._udp
cloud._postern._udp 90000 SRV 10 0 51820 gw
cloud._postern._udp 1 TXT "v=1" "pk=PK1"
gw 40 A 203.0.113.7
`)
	m := newMachine("example.com", nil, refuseLoopback)
	browsed(t, m, z, epoch)
	due := map[string]time.Duration{
		"TXT cloud._postern._udp.example.com": 5 * time.Second,  // at least
		"AAAA gw.example.com":                 30 * time.Second, // by the SOA's minimum
		"A gw.example.com":                    40 * time.Second,
		"PTR _postern._udp.example.com":       10 * time.Minute,
		"SRV cloud._postern._udp.example.com": time.Hour, // at most
	}
	for q, e := range m.entries {
		if got := e.due.Sub(epoch); got != due[q.String()] {
			t.Errorf("%s is asked for after %v, want %v", q, got, due[q.String()])
		}
	}
	if ask, next, _, _ := m.poll(epoch.Add(4 * time.Second)); len(ask) != 0 || next.Sub(epoch) != 5*time.Second {
		t.Errorf("after 4 s %v is asked, next at %v; want nothing, and 5 s", ask, next.Sub(epoch))
	}
	ask, _, d, complete := m.poll(epoch.Add(5 * time.Second))
	if len(ask) != 1 || ask[0].rtype != dns.TypeTXT || !complete || !d.Instances[0].Usable() {
		t.Errorf("after 5 s %v is asked, complete %v; want TXT alone, and what is known to hold", ask, complete)
	}
}

// TestWhatWasKnownHolds makes the servers fail, for less than a day and for more.
func TestWhatWasKnownHolds(t *testing.T) {
	m := newMachine("example.com", nil, refuseLoopback)
	browsed(t, m, offline(t, good), epoch)
	away := errors.New("the DNS server 192.0.2.53 does not answer within 2s")
	now := epoch
	fail := func(until time.Time) Domain {
		for {
			ask, next, d, _ := m.poll(now)
			for _, q := range ask {
				m.answered(now, q, answer{}, away)
			}
			if now = next; now.After(until) {
				return d
			}
		}
	}
	d := fail(epoch.Add(23 * time.Hour))
	if i := d.Instances[0]; !i.Usable() || len(i.Problems) != 1 || i.Problems[0].Kind != Unanswered ||
		!strings.Contains(i.Problems[0].What.String(), "is not answered: the DNS server 192.0.2.53 does not answer within 2s; the last good answer holds") {
		t.Errorf("after 23 h: %+v, want it usable with one problem", d.Instances[0])
	}
	if d := fail(epoch.Add(25 * time.Hour)); len(d.Instances) != 0 || len(d.Problems) != 1 || d.Problems[0].Kind != Unanswered {
		t.Errorf("after 25 h: %+v, want nothing but the problem", d)
	}
	// A negative answer is an answer, and counts at once.
	m = newMachine("example.com", nil, refuseLoopback)
	z := offline(t, good)
	browsed(t, m, z, epoch)
	z.set(t, "")
	if d := browsed(t, m, z, epoch.Add(2*time.Hour)); len(d.Instances) != 0 || d.Problems[0].Kind != Nothing {
		t.Errorf("a zone without records gives %+v", d)
	}
}

func TestDNSSEC(t *testing.T) {
	z := offline(t, good)
	z.ad = true
	m := newMachine("example.com", nil, refuseLoopback)
	if d := browsed(t, m, z, epoch); d.DNSSEC != Validated || d.Instances[0].DNSSEC != Validated {
		t.Errorf("got %v and %v, want both validated", d.DNSSEC, d.Instances[0].DNSSEC)
	}
	// One record that is not validated makes the whole gateway so.
	for q := range m.entries {
		if q.rtype == dns.TypeTXT {
			a := m.entries[q].answer
			a.validated = false
			m.answered(epoch, q, a, nil)
		}
	}
	if _, _, d, _ := m.poll(epoch); d.DNSSEC != Validated || d.Instances[0].DNSSEC != NotValidated {
		t.Errorf("got %v and %v, want the gateway not validated", d.DNSSEC, d.Instances[0].DNSSEC)
	}
	for q := range m.entries {
		if q.rtype == dns.TypeTXT {
			m.answered(epoch, q, answer{}, fmt.Errorf("%w: signature expired", errBogus))
		}
	}
	_, _, d, _ := m.poll(epoch)
	if i := d.Instances[0]; i.DNSSEC != Bogus || i.Problems[0].Kind != Forged {
		t.Errorf("got %+v, want it bogus", i)
	}
}

// TestTheDraw compares the order by weight with RFC 2782's probabilities.
func TestTheDraw(t *testing.T) {
	srv := func(priority, weight uint16, target string) *dns.SRV {
		return &dns.SRV{Priority: priority, Weight: weight, Port: 1, Target: target}
	}
	records := []*dns.SRV{srv(2, 0, "backup."), srv(1, 10, "a."), srv(1, 30, "b."), srv(1, 60, "c."), srv(1, 0, "zero.")}
	first := map[string]int{}
	const draws = 20000
	for n := range draws {
		seed := []byte(fmt.Sprint(n))
		got := arrange(seed, "x", records)
		if again := arrange(seed, "x", []*dns.SRV{records[4], records[3], records[2], records[1], records[0]}); !slices.Equal(got, again) {
			t.Fatal("the order depends on that of the records")
		}
		if got[4].Target != "backup." || got[3].Target != "zero." {
			t.Fatalf("order %v, want the priority and then the weights", got)
		}
		first[got[0].Target]++
	}
	for target, share := range map[string]float64{"a.": 0.1, "b.": 0.3, "c.": 0.6} {
		if got := float64(first[target]) / draws; got < share-0.02 || got > share+0.02 {
			t.Errorf("%s comes first in %.3f of the draws, want %.1f", target, got, share)
		}
	}
}

// TestLinesAreFound reads the lines of a Zone.
func TestLinesAreFound(t *testing.T) {
	ways := Ways([]netip.AddrPort{
		netip.MustParseAddrPort("203.0.113.8:40582"), netip.MustParseAddrPort("[2001:db8::8]:51820"), netip.MustParseAddrPort("203.0.113.9:51820"),
	})
	ways = append(ways, Way{Target: "dyn.example.com", Port: 51820})
	for _, domain := range []string{"example.com", ""} {
		lines, err := Zone{Domain: domain, Instance: "cloud", Key: keyOf(1), Capabilities: []string{"a"}, Ways: ways, TTL: time.Minute}.Lines()
		if err != nil {
			t.Fatal(err)
		}
		d := browsed(t, newMachine("example.com", nil, refuseLoopback), offline(t, strings.Join(lines, "\n")+"\ndyn.example.com. A 203.0.113.10"), epoch)
		i := d.Instances[0]
		want := []Address{
			{netip.MustParseAddrPort("203.0.113.8:40582"), 0, 10, 0, "postern-cloud.example.com"},
			{netip.MustParseAddrPort("[2001:db8::8]:51820"), 1, 20, 0, "postern-cloud-2.example.com"},
			{netip.MustParseAddrPort("203.0.113.9:51820"), 1, 20, 0, "postern-cloud-2.example.com"},
			{netip.MustParseAddrPort("203.0.113.10:51820"), 2, 30, 0, "dyn.example.com"},
		}
		if len(d.Instances) != 1 || i.Name.String() != "cloud" || i.Key != keyOf(1) || !slices.Equal(i.Addresses, want) || len(i.Problems) != 0 {
			t.Errorf("%s\nare read as %+v", strings.Join(lines, "\n"), d)
		}
	}
}

func TestNamesThatCannotBeBrowsed(t *testing.T) {
	for _, name := range []string{"", ".", "a..b", "_postern._udp.example.com", "office.local", "local.", strings.Repeat("a.", 100), strings.Repeat("a", 64) + ".com"} {
		if CheckDomain(name) == nil {
			t.Errorf("%q is taken for a domain", name)
		}
	}
	for _, name := range []string{"example.com", "Example.COM.", "com", "xn--bcher-kva.example"} {
		if err := CheckDomain(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	q := question{"_postern._udp.example.com.", dns.TypePTR}
	z := &zoneServer{}
	for _, zone := range []string{good, "_postern._udp CNAME a\na CNAME _postern._udp", ""} {
		p := dns.NewZoneParser(strings.NewReader("$ORIGIN example.com.\n$TTL 60\n"+zoneText(zone)), "", "")
		z.records = nil
		for rr, ok := p.Next(); ok; rr, ok = p.Next() {
			z.records = append(z.records, rr)
		}
		m := new(dns.Msg)
		m.SetQuestion(q.name, q.rtype)
		m.Response, m.Id = true, 7
		z.answer(m, m.Question[0])
		packet, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := unpack(packet, 7, q)
		if err != nil {
			return
		}
		a, err := read(m, q)
		if err == nil && (a.ttl < minTTL || a.ttl > maxTTL) {
			t.Errorf("time to live %v", a.ttl)
		}
		// The same message answers all questions that follow.
		machine := newMachine("example.com", nil, refuseLoopback)
		for range 20 {
			ask, _, d, _ := machine.poll(epoch)
			if len(d.Instances) > maxInstances || len(machine.entries) > maxQuestions {
				t.Fatalf("%d instances, %d record sets", len(d.Instances), len(machine.entries))
			}
			for _, q := range ask {
				b, err := read(m, q)
				machine.answered(epoch, q, b, err)
			}
		}
	})
}

func FuzzText(f *testing.F) {
	for _, t := range writeText(keyOf(1), []string{"a"}) {
		f.Add(t, "v=1")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := parseText([]string{a, b})
		if err != nil {
			return
		}
		again, err := parseText(writeText(got.key, got.capabilities))
		if err != nil || again.key != got.key || !slices.Equal(again.capabilities, got.capabilities) {
			t.Errorf("%q %q is read as %+v, and that as %+v (%v)", a, b, got, again, err)
		}
	})
}

func FuzzInstanceLabel(f *testing.F) {
	f.Add(`cloud\.a\226\152._postern._udp.example.com.`)
	f.Fuzz(func(t *testing.T, name string) {
		if label, ok := instanceLabel(name); ok && (label == "" || len(label) > len(name)) {
			t.Errorf("%q has the label %q", name, label)
		}
	})
}

// TestAHurryOutlivesAnAnswer repeats a query that was in progress when the network changed.
func TestAHurryOutlivesAnAnswer(t *testing.T) {
	m := newMachine("example.com", nil, refuseLoopback)
	ask, _, _, _ := m.poll(epoch)
	m.refreshAll(epoch)
	m.answered(epoch, ask[0], answer{ttl: time.Hour}, nil)
	if again, _, _, _ := m.poll(epoch); !slices.Equal(again, ask) {
		t.Errorf("%v is asked again, want %v", again, ask)
	}
	m.answered(epoch, ask[0], answer{ttl: time.Hour}, nil)
	if again, _, _, _ := m.poll(epoch); len(again) != 0 {
		t.Errorf("%v is asked a third time", again)
	}
}

// TestANewAddressIsNotThatOfAnOldKey changes both at once, and the address arrives first.
func TestANewAddressIsNotThatOfAnOldKey(t *testing.T) {
	z := offline(t, strings.Replace(good[:strings.Index(good, ` "ov`)]+"\ngw 5 A 203.0.113.7", "cloud._postern._udp TXT", "cloud._postern._udp 3000 TXT", 1))
	m := newMachine("example.com", nil, refuseLoopback)
	browsed(t, m, z, epoch)
	now := epoch.Add(10 * time.Second)
	z.set(t, zoneText(strings.Replace(good[:strings.Index(good, ` "ov`)]+"\ngw A 203.0.113.99", "PK1", "PK2", 1)))
	changed := false
	for range 100 {
		ask, _, d, complete := m.poll(now)
		if complete && len(ask) == 0 {
			if i := d.Instances[0]; i.Key != keyOf(2) || i.Addresses[0].Addr.String() != "203.0.113.99:51820" {
				t.Errorf("in the end it is %+v", i)
			}
			break
		}
		if i := d.Instances[0]; complete && i.Key == keyOf(1) && i.Addresses[0].Addr.String() == "203.0.113.99:51820" {
			t.Fatal("the new address is shown as that of the old key")
		}
		for _, q := range ask {
			r := new(dns.Msg)
			r.SetQuestion(q.name, q.rtype)
			z.answer(r, r.Question[0])
			a, err := read(r, q)
			m.answered(now, q, a, err)
			changed = changed || q.rtype == dns.TypeA
		}
	}
	if !changed {
		t.Error("the address was not asked for")
	}
}
