package lan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// types lists the answers and, after a bar, the additional records.
func types(list []*dns.Msg) string {
	var out []string
	for _, m := range list {
		name := func(rrs []dns.RR) string {
			var s []string
			for _, rr := range rrs {
				s = append(s, dns.TypeToString[rr.Header().Rrtype])
			}
			return strings.Join(s, " ")
		}
		text := name(m.Answer)
		if len(m.Extra) > 0 {
			text += " | " + name(m.Extra)
		}
		out = append(out, text)
	}
	return strings.Join(out, " / ")
}

func TestAnswers(t *testing.T) {
	h := newMachine(identity{key: keyOfTest(1), name: "edge"}, func() float64 { return 0 }).host
	twice := question(serviceName, dns.TypePTR)
	for range 40 {
		twice.Question = append(twice.Question, twice.Question[0])
	}
	knows := func(ttl int) *dns.Msg {
		m := question(serviceName, dns.TypePTR)
		m.Answer = []dns.RR{mustRR(t, fmt.Sprintf("%s %d IN PTR EDGE.%s", serviceName, ttl, serviceName))}
		return m
	}
	unicast := func(m *dns.Msg) *dns.Msg { m.Question[0].Qclass |= topBit; return m }
	for _, c := range []struct {
		name  string
		ask   *dns.Msg
		port  uint16
		wait  time.Duration
		want  string
		alone bool // by unicast only
	}{
		{"who is there", question(serviceName, dns.TypePTR), mdnsPort, sharedHigh, "PTR | SRV TXT A AAAA", false},
		{"the same often in one message", twice, mdnsPort, sharedHigh, "PTR | SRV TXT A AAAA", false},
		{"in other letters", question("_POSTERN._udp.LOCAL.", dns.TypePTR), mdnsPort, sharedHigh, "PTR | SRV TXT A AAAA", false},
		{"the asker knows", knows(60), mdnsPort, sharedHigh, "", false},
		{"the asker's knowledge is old", knows(59), mdnsPort, sharedHigh, "PTR | SRV TXT A AAAA", false},
		{"what services are there", question(enumerationName, dns.TypePTR), mdnsPort, sharedHigh, "PTR", false},
		{"where is it", question(instanceName("edge"), dns.TypeSRV), mdnsPort, 0, "SRV | A AAAA", false},
		{"all of it", question(instanceName("edge"), dns.TypeANY), mdnsPort, 0, "SRV TXT | A AAAA", false},
		{"an address", question(h, dns.TypeA), mdnsPort, 0, "A | AAAA", false},
		{"a type that it has not", question(h, dns.TypeTXT), mdnsPort, 0, "NSEC", false},
		{"another instance", question(instanceName("cloud"), dns.TypeSRV), mdnsPort, sharedHigh, "", false},
		{"another class", &dns.Msg{Question: []dns.Question{{Name: h, Qtype: dns.TypeA, Qclass: dns.ClassCHAOS}}}, mdnsPort, sharedHigh, "", false},
		{"for the asker, and fresh", unicast(question(serviceName, dns.TypePTR)), mdnsPort, 0, "PTR | SRV TXT A AAAA", true},
		{"a plain resolver", question(serviceName, dns.TypePTR), 40000, 0, "PTR | SRV TXT A AAAA", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				w, hosts := segment(t, "edge")
				hosts[0].run()
				pass(5 * time.Second)
				a := newAsker(t, w, c.port)
				c.ask.Id = 77
				from := time.Now()
				a.say(c.ask)
				pass(c.wait + time.Millisecond)
				got := a.heard()
				if types(got) != c.want {
					t.Fatalf("got %q, want %q", types(got), c.want)
				}
				pass(time.Second)
				if more := a.heard(); len(more) > 0 {
					t.Errorf("more came: %q", types(more))
				}
				if len(got) == 0 {
					return
				}
				for _, s := range w.since(netip.MustParseAddr(v4(1)), from) {
					if s.msg(t).Response && s.to.IsValid() != c.alone {
						t.Errorf("the answer went to %v", s.to)
					}
				}
				legacy := c.port != mdnsPort
				m := got[0]
				if want := map[bool]uint16{true: 77}[legacy]; m.Id != want || (len(m.Question) > 0) != legacy || !m.Authoritative {
					t.Errorf("the answer is %v", m)
				}
				for _, rr := range slices.Concat(m.Answer, m.Extra) {
					if legacy && (flushes(rr) || rr.Header().Ttl > 10) || !legacy && rr.Header().Ttl != 120 {
						t.Errorf("got %v", rr)
					}
				}
			})
		})
	}
}

// An asker's known answers may come in several messages; the answer waits for all of them.
func TestKnownAnswersMayFollow(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge")
		hosts[0].run()
		pass(5 * time.Second)
		a := newAsker(t, w, mdnsPort)
		ask := question(serviceName, dns.TypePTR)
		ask.Truncated = true
		rest := &dns.Msg{Answer: []dns.RR{mustRR(t, serviceName+" 120 IN PTR edge."+serviceName)}}
		a.say(ask)
		pass(100 * time.Millisecond)
		a.say(rest)
		pass(time.Second)
		if got := a.heard(); len(got) != 0 {
			t.Errorf("got %q, want nothing", types(got))
		}
		a.say(ask)
		pass(300 * time.Millisecond)
		if got := a.heard(); len(got) != 0 {
			t.Errorf("answered at once: %q", types(got))
		}
		pass(300 * time.Millisecond)
		if got := types(a.heard()); got != "PTR | SRV TXT A AAAA" {
			t.Errorf("got %q", got)
		}
	})
}

// However many hosts ask, each record is sent to the group once per second, and each link gets a
// limited number of messages.
func TestAnswersAreBounded(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge")
		hosts[0].run()
		pass(5 * time.Second)
		a, legacy := newAsker(t, w, mdnsPort), newAsker(t, w, 40000)
		from := time.Now()
		for range 100 {
			for range 20 {
				a.say(question(instanceName("edge"), dns.TypeSRV))
				legacy.say(question(instanceName("edge"), dns.TypeSRV))
			}
			pass(100 * time.Millisecond)
		}
		group, alone := 0, 0
		for _, s := range w.since(netip.MustParseAddr(v4(1)), from) {
			switch {
			case s.to.IsValid():
				alone++
			case s.msg(t).Response:
				group++
			}
		}
		if group > 11 || group < 2 || alone > sendBurst+10*sendRate || alone < 50 {
			t.Errorf("in 10 s and to 4,000 questions the group got %d answers, askers %d", group, alone)
		}
	})
}

func TestWhoIsNotOnTheLinkIsIgnored(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge")
		hosts[0].run()
		pass(5 * time.Second)
		far := &asker{w.listen(IPv4, netip.MustParseAddrPort("203.0.113.9:5353")), t}
		far.say(question(serviceName, dns.TypePTR))
		announce := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: announced(t, "far", keyOfTest(9).String(), "192.168.1.9")}
		far.say(announce)
		pass(time.Second)
		if got := far.heard(); len(got) != 0 {
			t.Errorf("got %q", types(got))
		}
		hosts[0].want()
		if c := hosts[0].Status().Counts; c.OffLink != 2 {
			t.Errorf("counts %+v, want 2 from off the link", c)
		}
		// The same from an on-link sender is accepted.
		near := newAsker(t, w, mdnsPort)
		near.say(announce)
		pass(time.Second)
		hosts[0].want("far@eth1")
		// A response from a port other than multicast DNS's is ignored.
		odd := newAsker(t, w, 40000)
		odd.say(&dns.Msg{MsgHdr: dns.MsgHdr{Response: true}, Answer: announced(t, "odd", keyOfTest(8).String(), "192.168.1.8")})
		pass(time.Second)
		hosts[0].want("far@eth1")
	})
}

// announced returns an instance's records, as another program might write them.
func announced(t testing.TB, name, key, address string) []dns.RR {
	t.Helper()
	full, host := instanceName(name), "host-of-"+strings.ReplaceAll(fold(escaped(name)), `\`, "-")+".local."
	host = strings.NewReplacer(" ", "-", "(", "-", ")", "-").Replace(host)
	rr := "A"
	if strings.Contains(address, ":") {
		rr = "AAAA"
	}
	return []dns.RR{
		mustRR(t, serviceName+" 4500 IN PTR "+full),
		mustRR(t, full+" 120 IN SRV 0 0 51820 "+host),
		mustRR(t, full+` 4500 IN TXT "v=1" "pk=`+key+`"`),
		mustRR(t, host+" 120 IN "+rr+" "+address),
	}
}
