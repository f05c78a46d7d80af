package check

import (
	"context"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// What all outbound packets need is judged separately, and is not blamed while a single server or
// peer may be at fault.
func TestTheNetworkIsAtFaultOnlyIfNobodyAnswers(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	const one, two = "192.0.2.53:3478", "192.0.2.54:3478"
	silent := func(address string, last time.Duration) Server {
		s := Server{Name: address, Address: address, Err: "no answer in 3s"}
		if last > 0 {
			s.At = now.Add(-last)
		}
		return s
	}
	refused := func(r Refusal) []Refusal {
		r.At = now
		other := r
		r.To, other.To = one, two
		return []Refusal{r, other}
	}
	both := []Server{silent(one, 70*time.Second), silent(two, 70*time.Second)}
	lost := standing{failing: 1, heard: now.Add(-50 * time.Second)}
	for _, c := range []struct {
		name string
		own  Own
		standing
		want catalogue.Code
	}{
		{"nothing is known", Own{}, lost, ""},
		{"no link has a carrier", Own{Links: []Link{{"eth0", false}, {"eth1", false}}}, standing{}, catalogue.LinkDown},
		{"none has, and a peer works by another that is not known", Own{Links: []Link{{"eth0", false}}}, standing{working: 1}, ""},
		{"none has, and a server answers", Own{Links: []Link{{"eth0", false}}, STUN: []Server{{Name: one, Address: one, At: now}}}, lost, ""},
		{"one link has", Own{Links: []Link{{"eth0", false}, {"eth1", true}}}, lost, ""},
		{"peers and servers fell silent together", Own{STUN: both}, lost, catalogue.NothingAnswers},
		{"the servers do not answer for seconds", Own{STUN: []Server{{Name: one, Address: one, At: now.Add(-70 * time.Second), Unanswered: now.Add(-2500 * time.Millisecond)}}}, lost, catalogue.NothingAnswers},
		{"they were asked just now", Own{STUN: []Server{{Name: one, Address: one, At: now.Add(-70 * time.Second), Unanswered: now.Add(-time.Second)}}}, lost, ""},
		{"a peer works", Own{STUN: both}, standing{working: 1, failing: 1, heard: lost.heard}, ""},
		{"no peer is sought", Own{STUN: both}, standing{}, ""},
		{"a server answers", Own{STUN: []Server{silent(one, 70*time.Second), {Name: two, Address: two, At: now}}}, lost, ""},
		{"a server was last asked before the peer fell silent", Own{STUN: []Server{{Name: two, Address: two, At: now.Add(-55 * time.Second)}}}, lost, ""},
		{"the servers were silent long before", Own{STUN: []Server{silent(one, time.Hour), silent(two, time.Hour)}}, lost, ""},
		{"one server has never answered, nor a peer", Own{STUN: []Server{silent(one, 0)}}, standing{failing: 1}, ""},
		{"two have never answered", Own{STUN: []Server{silent(one, 0), silent(two, 0)}}, standing{failing: 1}, catalogue.NothingAnswers},
		{"there is no route", Own{STUN: both, Refused: refused(Refusal{Here: true, Reason: networkUnreachable})}, lost, catalogue.NoRoute},
		{"nothing may leave", Own{STUN: both, Refused: refused(Refusal{Here: true, Reason: "administratively prohibited"})}, lost, catalogue.SendProhibited},
		{"the router is down", Own{STUN: both, Refused: refused(Refusal{Here: true, Reason: hostUnreachable})}, lost, catalogue.NextHopSilent},
		{"the router refuses", Own{STUN: both, Refused: refused(Refusal{By: "192.168.1.1", Reason: networkUnreachable})}, lost, catalogue.RouterRefuses},
		{"this machine has no buffers", Own{STUN: both, Refused: refused(Refusal{Here: true, Reason: noBuffers})}, lost, catalogue.SendFails},
		{"a route is missing to one only", Own{STUN: both, Refused: refused(Refusal{Here: true, Reason: networkUnreachable})[:1]}, lost, catalogue.NothingAnswers},
	} {
		f := network(c.own, c.standing, now)
		if f.Fault() != c.want || f.Failed() != (c.want != "") {
			t.Errorf("%s: got %s %s, want %q", c.name, f.Outcome, f.Fault(), c.want)
		}
		if v := f.Verdict(); c.want != "" && (!strings.Contains(v.Cause, "this gateway") || v.Fix == "") {
			t.Errorf("%s: it reads %q, %q", c.name, v.Cause, v.Fix)
		}
	}
}

// A machine that refuses some sends explains silence, and nothing that has other evidence.
func TestARefusalToSendExplainsSilenceAlone(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts func(*Facts)
		code  catalogue.Code
		rests bool
	}{
		{"silence", func(*Facts) {}, catalogue.PeerSilent, true},
		{"it does not hear us", func(f *Facts) { f.HeardUnanswered = seen(publicCloud) }, catalogue.NotHeardByPeer, true},
		{"all is refused", func(f *Facts) { f.Unreachable = []Refusal{here(noBuffers)} }, catalogue.SendFails, true},
		{"another key", func(f *Facts) { f.OtherKey = KeySight{seen(publicCloud), aKey} }, catalogue.WrongPeerKey, false},
		{"it has removed us", func(f *Facts) { f.Removed = seen(publicCloud) }, catalogue.RemovedByPeer, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := unreached()
			c.facts(&f)
			r := Gateway(t.Context(), newOverlay(t).Ping, f)
			if r.Code != c.code || slices.Contains(r.Rests, verdict.Own(NameSending)) != c.rests {
				t.Errorf("%s: got %s, which rests on %v", c.name, r.Code, r.Rests)
			}
		})
	}
	down := network(Own{Links: []Link{{Name: "eth0"}}}, standing{failing: 1}, time.Now())
	if down.Code != catalogue.LinkDown || len(down.Rests) > 0 {
		t.Errorf("a link that is down: got %s, which rests on %v", down.Code, down.Rests)
	}
}

// A silent peer is not at fault while nothing outside answers. The servers are queried for that as
// soon as the peer does not answer.
func TestASilentPeerRestsOnTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		o := newOverlay(t)
		lost := time.Now()
		r := NewRunner(Options{Dial: o.Dial, Ping: o.Ping,
			Facts: func(string) (Facts, bool) {
				f := facts()
				f.NoPath, f.PathLost = "the last path failed", lost
				return f, true
			},
			Ask: func() { asked.Add(1) },
			Own: func() Own {
				s := Server{Name: "stun.example.net:3478", Address: "192.0.2.53:3478", At: lost}
				if asked.Load() > 0 {
					s.Err = "no answer in 3s"
				}
				return Own{STUN: []Server{s}}
			}})
		defer r.Close()
		r.SetPeers([]string{"cloud"})
		own, peers, err := r.Find(t.Context(), "cloud", true)
		if err != nil {
			t.Fatal(err)
		}
		report := verdict.Report("edge", time.Now(), own, peers, false)
		got := map[string]api.Check{}
		for _, c := range report.Checks {
			got[c.Name] = c
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("the servers were asked %d times, want once", n)
		}
		if c := got[NameNetwork]; c.Code != string(catalogue.NothingAnswers) || c.Verdict.Verdict != api.Error {
			t.Errorf("the network: got %+v", c)
		}
		for _, name := range []string{api.ServiceGateway, NameSTUN} {
			if c := got[name]; c.Verdict.Verdict != api.Unknown || c.DependsOn != verdict.Own(NameNetwork) {
				t.Errorf("%s: got %+v", name, c)
			}
		}
	})
}

// Another gateway that was started with our key explains why a peer is not reached, and nothing
// once the peer is reached.
func TestAnotherGatewayWithOurKey(t *testing.T) {
	now := time.Now()
	o := Own{Superseded: Superseded{By: "cloud", At: now.Add(-time.Second)}}
	for _, c := range []struct {
		unreached []string
		at        time.Time
		want      int
	}{{[]string{"cloud"}, now.Add(-time.Second), 1}, {nil, now, 0}, {[]string{"hub"}, now, 0}, {[]string{"cloud"}, now.Add(-evidenceLife), 0}} {
		o.Superseded.At = c.at
		if f := ownKey(o, standing{unreached: c.unreached}, now); len(f) != c.want || c.want > 0 && (f[0].Code != catalogue.KeyElsewhere || !f[0].Failed()) {
			t.Errorf("%v not reached: got %+v", c.unreached, f)
		}
	}
}

// Where no name server answers, it is said which ones are asked, or that none is named.
func TestNameServersOfThisMachine(t *testing.T) {
	conf := func(text string) fstest.MapFS { return fstest.MapFS{"etc/resolv.conf": {Data: []byte(text)}} }
	const none = "so only this machine itself is asked"
	for _, c := range []struct {
		root       fs.FS
		cause, fix string
	}{
		{nil, "for stun.example.net:3478", "cat /etc/resolv.conf"},
		{conf("# nameserver 192.0.2.1\nsearch example.net\nnameserver 10.96.0.10\n\tnameserver fd00::10 # two\n"), "it asks 10.96.0.10, fd00::10", "cat /etc/resolv.conf"},
		{conf("nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n"), "it asks 192.0.2.1, 192.0.2.2, 192.0.2.3", "cat /etc/resolv.conf"},
		{conf("nameserver\nnameserver ns.example.net\n"), "/etc/resolv.conf names none, " + none, "nameserver ADDRESS"},
		{fstest.MapFS{}, "/etc/resolv.conf cannot be read (file does not exist), " + none, "nameserver ADDRESS"},
	} {
		f := resolver(c.root, Own{STUN: []Server{{Name: "stun.example.net:3478", Nameless: true}}}, standing{})
		if v := f[0].Verdict(); !strings.HasSuffix(v.Cause, c.cause) || !strings.Contains(v.Fix, c.fix) {
			t.Errorf("%v: it reads %q, %q; want %q, %q", c.root, v.Cause, v.Fix, c.cause, c.fix)
		}
	}
}

// A name for which no name server answers is a fault of this machine's resolver, one for all peers
// and servers. A name that does not exist is a separate fault.
func TestNamesRestOnTheResolver(t *testing.T) {
	for _, c := range []struct {
		silent bool
		code   catalogue.Code // of the peer by itself
		roots  []string
	}{
		{true, catalogue.ResolverSilent, []string{NameResolver}},
		{false, catalogue.NameUnknown, []string{NameSTUN, api.ServiceGateway}},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newOverlay(t)
			r := NewRunner(Options{Dial: o.Dial, Ping: o.Ping,
				Facts: func(string) (Facts, bool) {
					f := facts()
					f.LastHandshake, f.Candidates, f.Endpoints, f.NoPath = time.Time{}, nil, []string{"cloud.example.net:51820"}, "no candidate is known yet"
					f.Unresolved = []NameFact{{Name: f.Endpoints[0], Err: "why", Silent: c.silent}}
					return f, true
				},
				Own: func() Own {
					return Own{STUN: []Server{{Name: "stun.example.net:3478", Err: "why", Nameless: c.silent}}}
				}})
			defer r.Close()
			r.SetPeers([]string{"cloud"})
			own, peers, err := r.Find(t.Context(), "cloud", true)
			if err != nil {
				t.Fatal(err)
			}
			if f, _ := verdict.Find(peers[0].Outbound, api.ServiceGateway); f.Code != c.code {
				t.Errorf("silent %v: got %s", c.silent, f.Code)
			}
			var roots []string
			for _, x := range verdict.Report("edge", time.Now(), own, peers, false).Checks {
				if x.Verdict.Verdict == api.Error || x.Verdict.Verdict == api.Warning {
					roots = append(roots, x.Name)
				}
			}
			if !slices.Equal(roots, c.roots) {
				t.Errorf("silent %v: the roots are %v, want %v", c.silent, roots, c.roots)
			}
		})
	}
}

// A peer that is dialled where another one answers is named, whichever was checked first.
func TestAnEndpointOfAnotherPeerIsNamed(t *testing.T) {
	for _, c := range []struct {
		name string
		path PathFacts // of berlin
		want catalogue.Code
	}{
		{"berlin answers there", PathFacts{Kind: api.PathDirect, Remote: publicCloud}, catalogue.EndpointOfAnother},
		{"at another port", PathFacts{Kind: api.PathDirect, Remote: "198.51.100.7:1025"}, catalogue.PeerSilent},
		{"over a relay", PathFacts{Kind: api.PathRelay, Remote: publicCloud, Since: time.Now()}, catalogue.PeerSilent},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, berlin := newOverlay(t), netip.MustParseAddr("fd00::b")
			r := NewRunner(Options{Dial: o.Dial,
				Ping: func(ctx context.Context, to netip.Addr, _ int) (time.Duration, error) {
					if to == berlin {
						return time.Millisecond, nil
					}
					<-ctx.Done()
					return 0, ctx.Err()
				},
				Facts: func(name string) (Facts, bool) {
					f := unreached()
					if f.Name = name; name == "berlin" {
						f = facts()
						f.Name, f.Address, f.Path, f.Probed = name, berlin, c.path, time.Now()
					}
					return f, true
				},
				Own: func() Own { return Own{} }})
			defer r.Close()
			r.SetPeers([]string{"berlin", "cloud"})
			for range 2 { // the first may check cloud before berlin
				_, peers, err := r.Find(t.Context(), "", true)
				if err != nil {
					t.Fatal(err)
				}
				if f, _ := verdict.Find(peers[0].Outbound, api.ServiceGateway); f.Outcome != api.OK {
					t.Errorf("%s: berlin: got %s %s", c.name, f.Outcome, f.Code)
				}
				f, _ := verdict.Find(peers[1].Outbound, api.ServiceGateway)
				if f.Code != c.want {
					t.Errorf("%s: cloud: got %s, want %s", c.name, f.Code, c.want)
				}
			}
		})
	}
}

// Packet loss on the path makes services time out, and has one root.
func TestServicesThatTimeOutRestOnTheWay(t *testing.T) {
	gateway := verdict.Finding{Name: api.ServiceGateway, Target: api.ServiceGateway, Outcome: api.OK}
	lossy := func(lost int) verdict.Finding {
		f := gateway
		f.Outcome, f.Code = api.Warning, catalogue.PacketsLost
		return f.With(func(p *catalogue.Params) { p.Sent, p.Lost = 200, lost })
	}
	slow := lossy(4)
	slow.RTT = slowTrip
	narrow := verdict.Finding{Name: NameMTU, Target: api.ServiceGateway, Outcome: api.Warning, Code: catalogue.PathMTUSmall}
	service := func(c catalogue.Code) verdict.Finding {
		return verdict.Finding{Name: api.ServiceAuth, Target: api.ServiceAuth, Outcome: api.Error, Code: c}
	}
	for _, c := range []struct {
		name    string
		way     []verdict.Finding
		service catalogue.Code
		root    string
	}{
		{"large packets vanish", []verdict.Finding{gateway, narrow}, catalogue.AuthTimeout, NameMTU},
		{"but something answered", []verdict.Finding{gateway, narrow}, catalogue.AuthRefused, ""},
		{"half of all is lost", []verdict.Finding{lossy(102), narrow}, catalogue.AuthTimeout, api.ServiceGateway},
		{"half of all is lost, and an answer comes late", []verdict.Finding{lossy(102)}, catalogue.APIServerSlow, api.ServiceGateway},
		{"little is lost, and what is not takes long", []verdict.Finding{slow}, catalogue.AuthTimeout, api.ServiceGateway},
		{"so little is lost that it is no reason", []verdict.Finding{lossy(4)}, catalogue.AuthTimeout, ""},
	} {
		all, _ := verdict.Correlate(time.Now(), nil, onTheWay(c.way, []verdict.Finding{service(c.service)}), nil)
		auth, _ := verdict.Find(all, api.ServiceAuth)
		root := ""
		if auth.Because != nil {
			root = auth.Because.Name
			if why, _ := verdict.Find(all, root); !why.Failed() {
				t.Errorf("%s: the root is %s, though a service fails by it", c.name, why.Outcome)
			}
		}
		if root != c.root {
			t.Errorf("%s: got the root %q, want %q", c.name, root, c.root)
		}
	}
}
