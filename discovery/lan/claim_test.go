package lan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestOneNameIsGivenOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		apart time.Duration
	}{{"at the same time", 0}, {"one after the other", 10 * time.Second}, {"while the other probes", 400 * time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				_, hosts := segment(t, "edge", "edge", "watcher")
				hosts[2].run()
				hosts[0].run()
				pass(c.apart)
				hosts[1].run()
				pass(5 * time.Second)
				hosts[2].want("edge@eth1", "edge (2)@eth1")
				got := []string{hosts[0].Status().Name, hosts[1].Status().Name}
				if c.apart == 10*time.Second && got[0] != "edge" {
					t.Errorf("who was there first has another name now: %q", got)
				}
				slices.Sort(got)
				if !slices.Equal(got, []string{"edge", "edge (2)"}) {
					t.Errorf("got %q, want one with a number", got)
				}
				for _, i := range hosts[2].Found() {
					if want := map[string]string{hosts[0].Status().Name: hosts[0].key.String(), hosts[1].Status().Name: hosts[1].key.String()}[i.Name.String()]; i.PublicKey.String() != want {
						t.Errorf("%s has the key %s, want %s", i.Name, i.PublicKey, want)
					}
				}
			})
		})
	}
}

// When networks are joined, two gateways may have the same name.
func TestJoinedNetworksSettleANameAnew(t *testing.T) {
	inTime(t, func(t *testing.T) {
		left, right := &wireNet{}, &wireNet{}
		a, b := newHost(t, "edge", 1), newHost(t, "edge", 2)
		a.plug(1, left, v4(1)+"/24")
		b.plug(1, right, v4(2)+"/24")
		a.run()
		b.run()
		pass(10 * time.Second)
		b.plug(1, nil)
		pass(lookEvery + time.Second)
		b.plug(1, left, v4(2)+"/24")
		pass(lookEvery + 10*time.Second)
		if x, y := a.Status().Name, b.Status().Name; x != "edge" || y != "edge (2)" {
			t.Errorf("they are %q and %q now, want the newcomer with a number", x, y)
		}
	})
}

// A sender that contradicts everything does not cause a flood.
func TestAQuarrelIsSlow(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge")
		hosts[0].run()
		pass(3 * time.Second)
		a := newAsker(t, w, mdnsPort)
		from := time.Now()
		for range 1200 { // two minutes
			m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}}
			m.Answer = []dns.RR{mustRR(t, instanceName(hosts[0].Status().Name)+" 120 IN SRV 0 0 1 evil.local.")}
			a.say(m)
			pass(100 * time.Millisecond)
		}
		n := len(w.since(netip.MustParseAddr(v4(1)), from))
		t.Logf("%d messages in two minutes, the name is %q now", n, hosts[0].Status().Name)
		if n > 500 {
			t.Errorf("%d messages in two minutes", n)
		}
		pass(20 * time.Second)
		if s := hosts[0].Status(); !s.Announced {
			t.Errorf("it is not announced once the quarrel is over: %+v", s)
		}
	})
}

// A claim is three probes and two announcements; the probes contain the claimed records.
func TestAClaimOnTheWire(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "edge")
		start := time.Now()
		hosts[0].run()
		pass(10 * time.Second)
		var story []string
		for _, s := range w.since(netip.MustParseAddr(v4(1)), start.Add(-1)) {
			m := s.msg(t)
			switch {
			case m.Response:
				story = append(story, "announce")
				for _, rr := range m.Answer {
					if shared := rr.Header().Rrtype == dns.TypePTR; flushes(rr) == shared {
						t.Errorf("the cache-flush bit of %v is wrong", rr)
					}
				}
			case len(m.Ns) > 0:
				story = append(story, "probe")
				if len(m.Question) != 2 || m.Question[0].Qtype != dns.TypeANY || len(m.Ns) != 4 || flushes(m.Ns[0]) {
					t.Errorf("the probe is %v", m)
				}
			}
		}
		if got := strings.Join(story, " "); got != "probe probe probe announce announce" {
			t.Errorf("got %q", got)
		}
		hosts[0].stop()
		last := w.since(netip.MustParseAddr(v4(1)), start)
		if m := last[len(last)-1].msg(t); !m.Response || m.Answer[0].Header().Ttl != 0 {
			t.Errorf("the last words are %v, want a goodbye", m)
		}
	})
}

func TestNumberedNamesStayLabels(t *testing.T) {
	long := strings.Repeat("a", 62) + "é"
	for _, c := range []struct {
		label string
		n     int
		want  string
	}{
		{"edge", 1, "edge"}, {"edge", 2, "edge (2)"},
		{strings.Repeat("a", 63), 12, strings.Repeat("a", 58) + " (12)"},
		{long[:58] + "éé", 2, long[:58] + " (2)"},
	} {
		got := numbered(c.label, c.n)
		if got != c.want || len(got) > maxLabel {
			t.Errorf("%q number %d: got %q, want %q", c.label, c.n, got, c.want)
		}
	}
}

// Names read back from the wire are those that were written.
func TestNamesSurviveTheWire(t *testing.T) {
	for _, label := range []string{"edge", "edge (2)", `a.b\c"d;e@f'g`, "Küche", "tab\tzero\x00", " "} {
		m := question(instanceName(label), dns.TypeSRV)
		got, err := parse(pack(m))
		if err != nil {
			t.Errorf("%q: %v", label, err)
			continue
		}
		back, ok := instanceLabel(got.Question[0].Name)
		if got.Question[0].Name != instanceName(label) || !ok || back != label {
			t.Errorf("%q came back as %q, %q", label, got.Question[0].Name, back)
		}
	}
	for _, other := range []string{serviceName, "a.b." + serviceName, "edge._http._tcp.local.", `edge\`, ".", `\9.` + serviceName} {
		if _, ok := instanceLabel(other); ok {
			t.Errorf("%q counts as an instance", other)
		}
	}
}

func TestTheLaterSetWinsATie(t *testing.T) {
	rr := func(s string) dns.RR { return mustRR(t, s) }
	for _, c := range []struct {
		name string
		a, b []dns.RR
		want int
	}{
		{"the same", []dns.RR{rr("x.local. 1 IN A 169.254.99.200")}, []dns.RR{rr("x.local. 9 IN A 169.254.99.200")}, 0},
		// The example of RFC 6762 §8.2.
		{"data", []dns.RR{rr("x.local. 1 IN A 169.254.99.200")}, []dns.RR{rr("x.local. 1 IN A 169.254.200.50")}, -1},
		{"type before data", []dns.RR{rr("x.local. 1 IN A 255.0.0.0")}, []dns.RR{rr("x.local. 1 IN TXT a")}, -1},
		{"more of them", []dns.RR{rr("x.local. 1 IN TXT b"), rr("x.local. 1 IN A 1.2.3.4")}, []dns.RR{rr("x.local. 1 IN A 1.2.3.4")}, 1},
	} {
		if got := compareSets(c.a, c.b); got < 0 != (c.want < 0) || got > 0 != (c.want > 0) {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}
