package lan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/tunnel/peer"
)

// tell announces records that anyone might send.
func (a *asker) tell(records ...dns.RR) {
	a.t.Helper()
	a.say(&dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: records})
}

// Ten thousand junk messages, some of them well-formed, change nothing and cause no flood.
func TestJunkDoesNoHarm(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge", "cloud")
		for _, h := range hosts {
			h.run()
		}
		pass(5 * time.Second)
		a := newAsker(t, w, mdnsPort)
		random := rand.New(rand.NewPCG(1, 2))
		good := pack(&dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: announced(t, "junk", keyOfTest(9).String(), "192.168.1.9")})
		ask := pack(question(serviceName, dns.TypePTR))
		from := time.Now()
		for n := range 10_000 {
			b := slices.Clone(good)
			switch n % 3 {
			case 0:
				b = make([]byte, random.IntN(600))
				for i := range b {
					b[i] = byte(random.Uint32())
				}
			case 1:
				b = slices.Clone(ask)
				b[random.IntN(len(b))] ^= byte(1 << random.IntN(8))
			default:
				for range 1 + random.IntN(4) {
					b[random.IntN(len(b))] ^= byte(1 << random.IntN(8))
				}
			}
			if err := a.Multicast(b); err != nil {
				t.Fatal(err)
			}
			if n%10 == 0 {
				pass(10 * time.Millisecond)
			}
		}
		pass(3 * time.Second)
		for n, h := range hosts {
			other := hosts[1-n]
			if !slices.ContainsFunc(h.Found(), func(i Instance) bool { return i.PublicKey == other.key }) || !h.Status().Announced {
				t.Errorf("%s has found %q, want the other too: %+v", h.o.Name, h.names(), h.Status())
			}
			if sent := len(w.since(netip.MustParseAddr(v4(n+1)), from)); sent > 400 {
				t.Errorf("%s sent %d messages in 13 s", h.o.Name, sent)
			}
		}
		t.Logf("%+v", hosts[0].Status().Counts)
	})
}

func TestInstancesAreBounded(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge", "cloud")
		hosts[0].run()
		pass(2 * time.Second)
		kept := func() int { return len(hosts[0].m.links[1].browser.cache.records[recordKey{serviceName, dns.TypePTR}]) }
		one, key := newAsker(t, w, mdnsPort), keyOfTest(9).String()
		for n := range 200 {
			one.tell(announced(t, fmt.Sprintf("one-%d", n), key, "192.168.1.9")...)
			pass(10 * time.Millisecond)
		}
		if n := kept(); n != maxPerSender {
			t.Errorf("of one sender %d instances are kept, want %d", n, maxPerSender)
		}
		for n := range 400 {
			c := w.listen(IPv4, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, byte(10 + n%100)}), mdnsPort))
			(&asker{c, t}).tell(announced(t, fmt.Sprintf("many-%d", n), key, "192.168.1.9")...)
			c.Close()
			pass(10 * time.Millisecond)
		}
		if n := kept(); n != maxInstances {
			t.Errorf("%d instances are kept, want %d", n, maxInstances)
		}
		records := 0
		for _, list := range hosts[0].m.links[1].browser.cache.records {
			records += len(list)
		}
		if records > maxInstances*4 {
			t.Errorf("%d records are kept", records)
		}
		// Forged instances do not displace a real one.
		hosts[1].run()
		pass(10 * time.Second)
		if !slices.Contains(hosts[0].names(), "cloud@eth1") {
			t.Error("there is no room for another")
		}
		pass(maxBelieved)
		hosts[0].want("cloud@eth1")
	})
}

// As many instances as there may be, with as much text as fits into a message, take little memory.
func TestLongTextsAreNotKept(t *testing.T) {
	repeat := func(s string, n int) []string { return slices.Repeat([]string{s}, n) }
	for name, c := range map[string]struct {
		more []string // in another TXT record
		kept bool
	}{
		"long":                 {more: repeat(strings.Repeat("x", 255), 30)},
		"many empty":           {more: repeat("", 650)},
		"binary":               {more: repeat(strings.Repeat(`\255`, 255), 5)},
		"as long as preferred": {repeat(strings.Repeat(`\255`, 100), 4), true},
		"as long as allowed":   {repeat(strings.Repeat("x", 216), 6), true},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				w, hosts := segment(t, "edge")
				hosts[0].run()
				pass(2 * time.Second)
				for n := range maxInstances {
					from := netip.AddrFrom4([4]byte{192, 168, 1, byte(10 + n/(maxPerSender/2))})
					conn := w.listen(IPv4, netip.AddrPortFrom(from, mdnsPort))
					records := announced(t, fmt.Sprintf("many-%d", n), keyOfTest(9).String(), "192.168.1.9")
					i := slices.IndexFunc(records, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeTXT })
					txt := dns.Copy(records[i]).(*dns.TXT)
					txt.Txt = c.more
					(&asker{conn, t}).tell(append(records, txt)...)
					conn.Close()
					pass(10 * time.Millisecond)
				}
				records, kept, memory := 0, 0, 0
				for k, list := range hosts[0].m.links[1].browser.cache.records {
					records += len(list)
					for _, r := range list {
						memory += len(r.value)
						if txt, ok := r.rr.(*dns.TXT); ok {
							memory += len(strings.Join(txt.Txt, "")) + len(txt.Txt)*int(unsafe.Sizeof(""))
						}
					}
					if k.rtype == dns.TypeTXT {
						kept += len(list) - 1
					}
				}
				want, most := 0, 512*maxInstances
				if c.kept {
					want, most = maxInstances, most+2*maxText*maxInstances
				}
				if records < 3*maxInstances || kept != want || memory > most {
					t.Errorf("%d records with %d bytes are kept, %d of the texts; want %d of these and at most %d bytes", records, memory, kept, want, most)
				}
			})
		})
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	key := keyOfTest(9)
	full := instanceName("odd")
	base := []string{
		serviceName + " 120 IN PTR " + full, full + " 120 IN SRV 0 0 51820 odd.local.",
		full + ` 120 IN TXT "v=1" "pk=` + key.String() + `"`, "odd.local. 120 IN A 192.168.1.9",
	}
	txt := func(s string) string { return full + " 120 IN TXT " + s }
	for _, c := range []struct {
		name    string
		replace int
		with    string
		want    string
	}{
		{"all is well", 2, txt(`"PK=` + key.String() + `" "v=1.3" "new=x" "caps=a,b c,a" "pk=again"`), ""},
		{"no version", 2, txt(`"pk=` + key.String() + `"`), "has no version"},
		{"another version", 2, txt(`"v=2" "pk=x"`), `version "2"`},
		{"no key", 2, txt(`"v=1"`), "no public key"},
		{"an empty text", 2, txt(`""`), "has no version"},
		{"half a key", 2, txt(`"v=1" "pk=AAAA"`), "is none: pk=\"AAAA\""},
		{"a key of zeros", 2, txt(`"v=1" "pk=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="`), "is none"},
		{"another's overlay address", 2, txt(`"v=1" "pk=` + key.String() + `" "ov=fd00::1"`), "is not that of its key, " + peer.OverlayAddr(key).String()},
		{"no port", 1, full + " 120 IN SRV 0 0 0 odd.local.", "no port"},
		{"an address elsewhere", 3, "odd.local. 120 IN A 203.0.113.9", "is of a network of eth1"},
		{"loopback", 3, "odd.local. 120 IN A 127.0.0.1", "is of a network of eth1"},
		{"the group itself", 3, "odd.local. 120 IN A 224.0.0.251", "is of a network of eth1"},
		{"no address", 3, "other.local. 120 IN A 192.168.1.9", "has no address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				w, hosts := segment(t, "edge")
				hosts[0].run()
				pass(2 * time.Second)
				var records []dns.RR
				for n, text := range base {
					if n == c.replace {
						text = c.with
					}
					records = append(records, mustRR(t, text))
				}
				newAsker(t, w, mdnsPort).tell(records...)
				pass(time.Second)
				got := hosts[0].Found()
				if len(got) != 1 || !strings.Contains(got[0].Err.String(), c.want) || got[0].Err.IsZero() != (c.want == "") {
					t.Fatalf("got %+v, want one that says %q", got, c.want)
				}
				if c.want == "" && (got[0].PublicKey != key || fmt.Sprint(got[0].Capabilities) != "[a]" || len(got[0].Addresses) != 1) {
					t.Errorf("got %+v", got[0])
				}
			})
		})
	}
}

// A record that replaces another does so within a second; a withdrawn one disappears.
func TestRecordsReplaceEachOther(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge")
		hosts[0].run()
		pass(2 * time.Second)
		a := newAsker(t, w, mdnsPort)
		records := announced(t, "cloud", keyOfTest(9).String(), "192.168.1.9")
		a.tell(records...)
		pass(5 * time.Second)
		hosts[0].want("cloud@eth1")
		next := mustRR(t, records[3].Header().Name+" 120 IN A 192.168.1.10")
		next.Header().Class |= topBit
		a.tell(next)
		pass(1100 * time.Millisecond)
		if got := hosts[0].Found()[0].Addresses; !slices.Equal(got, []netip.AddrPort{netip.MustParseAddrPort("192.168.1.10:51820")}) {
			t.Errorf("got %v, want the new address alone", got)
		}
		// Without the bit it is one more.
		a.tell(mustRR(t, next.Header().Name+" 120 IN A 192.168.1.11"))
		pass(1100 * time.Millisecond)
		if got := hosts[0].Found()[0].Addresses; len(got) != 2 {
			t.Errorf("got %v, want both", got)
		}
		a.tell(withTTL(records[2], 0))
		pass(1100 * time.Millisecond)
		hosts[0].want()
		a.tell(records[2]) // it is queried, and comes back
		pass(time.Second)
		hosts[0].want("cloud@eth1")
	})
}

// Missing records are queried until the instance is complete, but not for ever.
func TestMissingPartsAreAskedFor(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge")
		hosts[0].run()
		pass(2 * time.Second)
		records := announced(t, "cloud", keyOfTest(9).String(), "192.168.1.9")
		from := time.Now()
		a := newAsker(t, w, mdnsPort)
		a.tell(records[0])
		pass(time.Minute)
		asked := map[uint16]int{}
		for _, s := range w.since(netip.MustParseAddr(v4(1)), from) {
			for _, q := range s.msg(t).Question {
				asked[q.Qtype]++
			}
		}
		if asked[dns.TypeSRV] != maxResolves || asked[dns.TypeTXT] != maxResolves || asked[dns.TypeA] != 0 {
			t.Errorf("asked by type %v, want SRV and TXT %d times", asked, maxResolves)
		}
		a.tell(records[0], records[1], records[2])
		pass(100 * time.Millisecond)
		last := w.since(netip.MustParseAddr(v4(1)), from)
		if m := last[len(last)-1].msg(t); len(m.Question) != 2 || m.Question[0].Qtype != dns.TypeA || m.Question[1].Qtype != dns.TypeAAAA {
			t.Errorf("asked %v, want the addresses", m.Question)
		}
		a.tell(records[3])
		pass(100 * time.Millisecond)
		hosts[0].want("cloud@eth1")
	})
}

// A forged goodbye for our records is contradicted.
func TestAForgedGoodbyeIsContradicted(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge", "cloud")
		for _, h := range hosts {
			h.run()
		}
		pass(10 * time.Second)
		records := hosts[0].m.links[1].own()
		a := newAsker(t, w, mdnsPort)
		a.tell(withTTL(records[2], 0), withTTL(records[3], 0))
		pass(500 * time.Millisecond)
		a.tell(withTTL(records[2], 0), withTTL(records[3], 0))
		pass(3 * time.Second)
		hosts[1].want("edge@eth1")
	})
}

// Another host's question makes our own unnecessary.
func TestAQuestionIsNotAskedTwice(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge")
		hosts[0].port = 0
		hosts[0].run()
		a := newAsker(t, w, mdnsPort)
		pass(500 * time.Millisecond)
		a.say(question(serviceName, dns.TypePTR)) // the second is due at 1 s
		pass(time.Second)
		if n := len(w.since(netip.MustParseAddr(v4(1)), time.Time{})); n != 1 {
			t.Errorf("it asked %d times within 1.5 s, want once", n)
		}
		// An asker whose known answers we do not know will not get them announced.
		b := question(serviceName, dns.TypePTR)
		b.Answer = []dns.RR{mustRR(t, serviceName+" 120 IN PTR "+instanceName("x"))}
		pass(500 * time.Millisecond)
		a.say(b)
		pass(2 * time.Second)
		if n := len(w.since(netip.MustParseAddr(v4(1)), time.Time{})); n != 2 {
			t.Errorf("it asked %d times within 4 s, want twice", n)
		}
	})
}

// Known answers are sent with the question, in as many messages as that takes.
func TestKnownAnswersAreTold(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge")
		hosts[0].run()
		pass(500 * time.Millisecond)
		for n := range 100 {
			c := w.listen(IPv4, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, byte(10 + n)}), mdnsPort))
			(&asker{c, t}).tell(mustRR(t, serviceName+" 4500 IN PTR "+instanceName(fmt.Sprintf("gateway-with-a-long-name-%d", n))))
			c.Close()
		}
		from := time.Now()
		pass(time.Second)
		known := 0
		var more []bool
		for _, s := range w.since(netip.MustParseAddr(v4(1)), from) {
			m := s.msg(t)
			if len(m.Answer) == 0 || m.Response {
				continue
			}
			if known += len(m.Answer); len(s.data) > maxSend {
				t.Errorf("a message of %d bytes", len(s.data))
			}
			more = append(more, m.Truncated)
		}
		if known != 100 || len(more) < 2 || more[len(more)-1] || !more[0] {
			t.Errorf("%d known answers in messages of which more follow: %v", known, more)
		}
	})
}

func FuzzMessage(f *testing.F) {
	seed := func(m *dns.Msg) { f.Add(pack(m), uint16(mdnsPort)) }
	seed(question(serviceName, dns.TypePTR))
	seed(question(instanceName("edge"), dns.TypeANY))
	seed(&dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: announced(f, "cloud (2)", keyOfTest(9).String(), "192.168.1.9")})
	f.Add(pack(question(enumerationName, dns.TypePTR)), uint16(40000))
	probe := question(instanceName("edge"), dns.TypeANY)
	probe.Ns = announced(f, "edge", keyOfTest(9).String(), "192.168.1.9")[1:]
	seed(probe)
	f.Add([]byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 12, 0, 1}, uint16(mdnsPort))
	f.Fuzz(func(t *testing.T, packet []byte, port uint16) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		m := newMachine(identity{name: "edge", key: keyOfTest(1), ttl: DefaultTTL}, func() float64 { return 0.5 })
		i := Interface{Index: 1, Name: "eth1", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.1.1/24")}}
		m.setLinks(now, []linkState{{i, [families]bool{true, true}}})
		m.setPort(now, 51820)
		from := netip.AddrPortFrom(netip.MustParseAddr("192.168.1.9"), port)
		for range 40 { // ten seconds: it probes, announces and holds its name
			now = now.Add(250 * time.Millisecond)
			m.handle(now, 1, IPv4, packet, from)
			m.poll(now)
			m.found(now)
		}
		total := 0
		for _, d := range m.take() {
			if total++; len(d.data) > maxPacket {
				t.Errorf("a message of %d bytes", len(d.data))
			}
			if _, err := parse(d.data); err != nil {
				t.Errorf("a message that is none: %v", err)
			}
		}
		// Each question may be answered and may lead to another, in both families.
		if total > 160 {
			t.Errorf("%d messages in ten seconds", total)
		}
	})
}
