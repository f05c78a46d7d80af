package way_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/way"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// well returns a gateway behind a NAT with a peer at a public address, all of which works.
func well() *api.Status {
	ok := api.Verdict{Verdict: api.OK, CheckedAt: &noon}
	all := api.Targets{Auth: ok, APIServer: ok, Gateway: ok}
	return &api.Status{
		Gateway: api.GatewayStatus{Name: "edge", NAT: api.NAT{Mapping: "endpoint-independent"}, Candidates: []api.Candidate{
			{Address: "192.168.7.2:51820", Source: api.SourceHost}, {Address: "198.51.100.7:40582", Source: api.SourceSTUN}}},
		Peers: []api.PeerStatus{{
			Name: "cloud", State: api.StateConnected, Allow: []string{"apiServer"},
			Path:         api.Path{Kind: api.PathDirect, Remote: "203.0.113.10:51820", Source: api.SourceAdvertised, RTTSeconds: 0.012, MTU: 1420, Traffic: &api.Traffic{LossSample: 1000, LossRatio: 0.01}},
			Candidates:   []api.Candidate{{Address: "203.0.113.10:51820", Source: api.SourceAdvertised, State: "selected"}},
			Reachability: api.Reachability{Outbound: all, Inbound: all},
		}},
	}
}

// drawn formats a way as one line.
func drawn(w way.Way) string {
	var b strings.Builder
	for i, n := range w.Nodes {
		fmt.Fprintf(&b, "%s %s", n.Kind, n.State)
		if i < len(w.Edges) {
			fmt.Fprintf(&b, " | %s/%s %s | ", w.Edges[i].Out, w.Edges[i].In, w.Edges[i].State())
		}
	}
	return b.String()
}

func services(w way.Way) string {
	var out []string
	for _, n := range w.Services {
		out = append(out, fmt.Sprintf("%s %s %s", n.Direction, n.Name, n.State))
	}
	return strings.Join(out, ", ")
}

// fails returns a failing check of cloud.
func fails(name string, code catalogue.Code, stage string) api.Check {
	later := noon.Add(time.Second)
	return api.Check{Name: name, Peer: "cloud", Target: api.ServiceGateway, Direction: api.DirectionOutbound,
		Verdict: api.Verdict{Verdict: api.Error, Code: string(code), Stage: stage, Cause: "why", Fix: "fix", CheckedAt: &later}}
}

func with(c api.Check, change func(*api.Check)) api.Check {
	change(&c)
	return c
}

func TestWhereTheWayBreaks(t *testing.T) {
	const fine = "gateway ok | ok/ok ok | nat ok | ok/ok ok | peerEdge ok | ok/ok ok | peer ok"
	own := func(name string, code catalogue.Code) api.Check {
		return with(fails(name, code, ""), func(c *api.Check) { c.Peer, c.Direction = "", api.DirectionOwn })
	}
	follows := func(root string) api.Check {
		return with(fails("gateway", "", "probe"), func(c *api.Check) { c.DependsOn = root })
	}
	warning := func(c api.Check) api.Check { c.Verdict.Verdict = api.Warning; return c }
	for _, tc := range []struct {
		what   string
		change func(*api.Status, *api.PeerStatus)
		checks []api.Check
		want   string
		place  string
	}{
		{"nothing", nil, nil, fine, ""},
		{"silence: nobody can tell the direction", nil, []api.Check{fails("gateway", catalogue.HandshakeStale, "probe")},
			"gateway ok | ok/ok ok | nat ok | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "somewhere between the NAT here and cloud"},
		{"no handshake, though probes are answered", func(_ *api.Status, p *api.PeerStatus) {
			p.State, p.Path = api.StateConnecting, api.Path{Kind: api.PathNone, Proven: &noon}
		}, []api.Check{fails("gateway", catalogue.PeerSilent, "handshake")},
			"gateway ok | ok/ok ok | nat ok | warning/warning error | peerEdge ok | ok/ok ok | peer unknown", "somewhere between the NAT here and cloud"},
		{"nothing outside answers, behind a NAT", nil, []api.Check{own("network", catalogue.NothingAnswers), follows("own/network")},
			"gateway ok | ok/ok ok | nat error | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "at the NAT here"},
		{"nothing outside answers, and there is no NAT", func(s *api.Status, _ *api.PeerStatus) { s.Gateway.NAT.Mapping = "none" },
			[]api.Check{own("network", catalogue.NothingAnswers), follows("own/network")},
			"gateway ok | error/error error | peerEdge unknown | unknown/unknown unknown | peer unknown", "in front of this gateway"},
		{"heard, and not heard", nil, []api.Check{fails("gateway", catalogue.NotHeardByPeer, "probe")},
			"gateway ok | ok/ok ok | nat ok | error/ok error | peerEdge unknown | unknown/ok unknown | peer ok", "between the NAT here and cloud, including its firewall"},
		{"the same as the peer reports it", nil, []api.Check{with(fails("inbound-gateway", catalogue.NotHeardByPeer, "probe"), func(c *api.Check) { c.Direction = api.DirectionInbound })},
			"gateway ok | ok/ok ok | nat ok | ok/error error | peerEdge unknown | ok/unknown unknown | peer ok", "between the NAT here and cloud, including its firewall"},
		{"a code that knows the place", nil, []api.Check{with(fails("gateway", catalogue.RouterRefuses, "probe"), func(c *api.Check) { c.Place = "at the router 192.0.2.254" })},
			"gateway ok | ok/ok ok | nat ok | error/unknown error | peerEdge unknown | unknown/unknown unknown | peer unknown", "at the router 192.0.2.254"},
		{"the keys differ", nil, []api.Check{fails("gateway", catalogue.PresharedKeyDiffers, "handshake")},
			"gateway ok | ok/ok ok | nat ok | ok/ok ok | peerEdge ok | ok/ok ok | peer error", "at cloud"},
		{"some packets are lost, so many that it is an error", nil, []api.Check{fails("gateway", catalogue.PacketsLost, "ping")},
			"gateway ok | ok/ok ok | nat ok | warning/warning error | peerEdge ok | ok/ok ok | peer ok", "between the NAT here and cloud"},
		{"the same, and status has it beside the gateway", func(_ *api.Status, p *api.PeerStatus) { p.Reachability.Beside = api.Error }, []api.Check{fails("path", catalogue.PacketsLost, "traffic")},
			"gateway ok | ok/ok ok | nat ok | warning/ok error | peerEdge ok | ok/ok ok | peer ok", "between the NAT here and cloud"},
		{"a router refuses", nil, []api.Check{with(fails("gateway", catalogue.RouterRefuses, "probe"), func(c *api.Check) { c.By = "198.51.100.1" })},
			"gateway ok | ok/ok ok | nat ok | ok/ok ok | router error | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "at the router 198.51.100.1"},
		{"the one that refuses is in front of the peer", nil, []api.Check{with(fails("gateway", catalogue.RouterRefuses, "probe"), func(c *api.Check) { c.By = "203.0.113.10" })},
			"gateway ok | ok/ok ok | nat ok | ok/ok ok | peerEdge error | unknown/unknown unknown | peer unknown", "at the firewall of cloud"},
		{"nobody says which router refuses", nil, []api.Check{fails("gateway", catalogue.RouterRefuses, "probe")},
			"gateway ok | ok/ok ok | nat ok | error/unknown error | peerEdge unknown | unknown/unknown unknown | peer unknown", "between the NAT here and cloud, including its firewall"},
		{"its address is wrong", nil, []api.Check{fails("gateway", catalogue.NameUnknown, "resolve")},
			"gateway ok | ok/ok ok | nat ok | unknown/unknown unknown | peerEdge error | unknown/unknown unknown | peer unknown", "at the address of cloud"},
		{"its address is wrong, and it was reached without a NAT", func(_ *api.Status, p *api.PeerStatus) { p.Path.Source = api.SourceHost },
			[]api.Check{fails("gateway", catalogue.NameMoved, "resolve")}, "gateway ok | unknown/unknown unknown | peer unknown", "at the address of cloud"},
		{"a code of a later version", nil, []api.Check{fails("gateway", "PST9999", "ping")},
			"gateway ok | ok/ok ok | nat ok | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "somewhere between the NAT here and cloud"},
		{"another one, at a name", nil, []api.Check{fails("gateway", "PST9999", "resolve")},
			"gateway ok | ok/ok ok | nat ok | unknown/unknown unknown | peerEdge error | unknown/unknown unknown | peer unknown", "at the address of cloud"},
		{"loss on the way there", nil, []api.Check{warning(fails("path", catalogue.PacketsLost, "traffic"))},
			"gateway ok | ok/ok ok | nat ok | warning/ok warning | peerEdge ok | ok/ok ok | peer ok", "between the NAT here and cloud"},
		{"loss of round trips", nil, []api.Check{warning(fails("gateway", catalogue.PacketsLost, "ping"))},
			"gateway ok | ok/ok ok | nat ok | warning/warning warning | peerEdge ok | ok/ok ok | peer ok", "between the NAT here and cloud"},
		{"this gateway, by a check of a later version", nil, []api.Check{own("route", "PST9998"), follows("own/route")},
			"gateway error | unknown/unknown unknown | nat unknown | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "at this gateway"},
		{"no way in here", nil, []api.Check{own("exposure", catalogue.NoWayIn), follows("own/exposure")},
			"gateway ok | ok/ok ok | nat error | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "at the NAT here"},
		{"something of this gateway that the peer has no part in", nil, []api.Check{own("resources", "PST0810")}, fine, ""},
		{"this gateway's own API server", nil, []api.Check{own("upstream-apiServer", catalogue.UpstreamRefused)}, fine, "at apiServer of this gateway"},
		{"a relay is in use", func(_ *api.Status, p *api.PeerStatus) {
			p.Path.Kind, p.Path.Relay = api.PathRelay, "turn.example.net:3478"
		}, []api.Check{warning(fails("relay", catalogue.RelayInUse, "probe"))},
			"gateway ok | ok/ok ok | nat ok | ok/ok ok | relay warning | ok/ok ok | peerEdge ok | ok/ok ok | peer ok", "at the relay turn.example.net:3478"},
		{"behind a relay that works", func(_ *api.Status, p *api.PeerStatus) {
			p.Path.Kind, p.Path.Relay = api.PathRelay, "turn.example.net:3478"
		}, []api.Check{fails("gateway", catalogue.HandshakeStale, "probe"), with(own("exposure-turn", ""), func(c *api.Check) { c.Verdict.Verdict = api.OK })},
			"gateway ok | ok/ok ok | nat ok | ok/ok ok | relay ok | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "somewhere between the relay turn.example.net:3478 and cloud"},
		{"neither NAT", func(s *api.Status, p *api.PeerStatus) { s.Gateway.NAT.Mapping = "none"; p.Path.Source = api.SourceHost }, nil,
			"gateway ok | ok/ok ok | peer ok", ""},
		{"the path in use has just stopped answering", func(_ *api.Status, p *api.PeerStatus) { p.Candidates[0].State = "suspect" }, nil,
			"gateway ok | ok/ok ok | nat ok | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "somewhere between the NAT here and cloud"},
		{"the same, and a handshake was a while ago", func(_ *api.Status, p *api.PeerStatus) { p.Candidates[0].State = "suspect" }, []api.Check{fails("gateway", catalogue.PingLost, "ping")},
			"gateway ok | ok/ok ok | nat ok | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "somewhere between the NAT here and cloud"},
		{"no path any more, and no check has seen it", func(_ *api.Status, p *api.PeerStatus) {
			p.Path = api.Path{Kind: api.PathNone, Reason: "nothing answers"}
		}, nil,
			"gateway ok | ok/ok ok | nat ok | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "somewhere between the NAT here and cloud"},
		{"nothing shows that anything leaves this side", func(s *api.Status, p *api.PeerStatus) {
			s.Gateway.Candidates = nil
		}, []api.Check{fails("gateway", catalogue.HandshakeStale, "probe")},
			"gateway ok | unknown/unknown unknown | nat unknown | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "somewhere between this gateway and cloud"},
		{"another peer shows that it does", func(s *api.Status, p *api.PeerStatus) {
			s.Gateway.Candidates = nil
			other := *p
			other.Name = "hub"
			s.Peers = append(s.Peers, other)
		}, []api.Check{fails("gateway", catalogue.HandshakeStale, "probe")},
			"gateway ok | ok/ok ok | nat ok | unknown/unknown unknown | peerEdge unknown | unknown/unknown unknown | peer unknown", "somewhere between the NAT here and cloud"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			s := well()
			if tc.change != nil {
				tc.change(s, &s.Peers[0])
			}
			w := way.Of(s, &s.Peers[0], tc.checks, nil)
			if got := drawn(w); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			place := ""
			if w.Break != nil {
				place = w.Break.Place
			}
			if place != tc.place {
				t.Errorf("it breaks %q, want %q", place, tc.place)
			}
			if b := w.Break; b != nil && b.Located == strings.HasPrefix(place, "somewhere ") {
				t.Errorf("it breaks %q, located: %v", place, b.Located)
			}
		})
	}
}

func TestServicesOfBothEnds(t *testing.T) {
	s := well()
	p := &s.Peers[0]
	p.Local = []api.Local{{Service: "registry", Address: "127.0.0.1:5000", Error: "address already in use"}}
	p.Reachability.Inbound.APIServer = api.Verdict{Verdict: api.Off}
	p.Reachability.Outbound.APIServer = api.Verdict{Verdict: api.Warning, Code: "PST0308", Stage: "http"}
	const want = "outbound auth ok, outbound apiServer warning, inbound auth ok, inbound apiServer off, outbound registry error"
	w := way.Of(s, p, nil, nil)
	if got := services(w); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if w.Break.Place != "at this gateway" || w.Break.Outcome != api.Error {
		t.Errorf("the break is %+v, want the error at registry before the warning", w.Break)
	}
	// A service that worked before is unknown while nothing gets through.
	p.Path.Kind = api.PathNone
	const silent = "outbound auth unknown, outbound apiServer warning, inbound auth unknown, inbound apiServer off, outbound registry error"
	if got := services(way.Of(s, p, nil, nil)); got != silent {
		t.Errorf("without a path: got  %s\nwant %s", got, silent)
	}
}

// The peer's other services are shown by name, failing ones first. Those that there is no room for
// are counted.
func TestServicesBesidesTheEndpoints(t *testing.T) {
	imported := func(name, state, code string) api.ClusterService {
		return api.ClusterService{Service: name, Direction: api.ServiceImported, Peer: "cloud", State: state, Code: code, Cause: "why"}
	}
	offers := func(names ...string) func(*api.PeerStatus) {
		return func(p *api.PeerStatus) { p.Offers = append([]string{"auth", "apiServer"}, names...) }
	}
	for _, tc := range []struct {
		what     string
		change   func(*api.PeerStatus)
		clusters []api.ClusterService
		want     string
		more     *way.More
		place    string
	}{
		{"none but the endpoints", offers(), nil, "", nil, ""},
		{"offered, listened for, or both", func(p *api.PeerStatus) {
			offers("logs", "registry")(p)
			p.Local = []api.Local{{Service: "apiServer", Address: "127.0.0.1:7443"}, {Service: "registry", Address: "127.0.0.1:5000"}, {Service: "gone", Address: "127.0.0.1:99"}}
		}, nil, "gone 127.0.0.1:99 off, logs ok, registry 127.0.0.1:5000 ok", nil, ""},
		{"the peer has not told what it offers", func(p *api.PeerStatus) { p.Local = []api.Local{{Service: "registry", Address: "127.0.0.1:5000"}} }, nil,
			"registry 127.0.0.1:5000 unknown", nil, ""},
		{"it was not reached last", func(p *api.PeerStatus) {
			offers("registry")(p)
			p.Local = []api.Local{{Service: "registry", Address: "127.0.0.1:5000", Lost: &api.Verdict{Verdict: api.Warning, Code: string(catalogue.PeerServiceDown)}}}
		}, nil, "registry 127.0.0.1:5000 warning", nil, "at registry of cloud"},
		{"nothing gets through", func(p *api.PeerStatus) { offers("logs")(p); p.Path.Kind = api.PathNone }, nil, "logs unknown", nil, ""},
		{"ports of services of clusters", func(p *api.PeerStatus) {
			offers()(p)
			p.Local = []api.Local{{Service: "shop/web:80", Address: "10.0.0.9:1"}, {Service: "shop/web:443", Address: "10.0.0.9:2", Error: "in use"}}
		}, []api.ClusterService{imported("shop/web", api.ServiceInUse, "")}, "shop/web 10.0.0.9:1 error", nil, "at this gateway"},
		{"imported ones", offers(), []api.ClusterService{imported("a/ok", api.ServiceInUse, ""), imported("b/late", api.ServiceWaiting, ""), imported("z/refused", api.ServiceRefused, "PST0904"),
			{Service: "c/exported", Direction: api.ServiceExported, Peer: "cloud", State: api.ServiceInUse}, {Service: "d/hub", Direction: api.ServiceImported, Peer: "hub", State: api.ServiceInUse}},
			"z/refused warning, a/ok ok, b/late unknown", nil, "at z/refused of cloud"},
		{"an imported one was not reached last", offers(), []api.ClusterService{imported("a/ok", api.ServiceInUse, ""), imported("b/lost", api.ServiceFailing, "PST0320")},
			"b/lost warning, a/ok ok", nil, "at b/lost of cloud"},
		{"one more than there is room for", offers("d", "c", "b", "a"), nil, "a ok, b ok, c ok, d ok", nil, ""},
		{"the others are well", offers("e", "d", "c", "b", "a"), nil, "a ok, b ok, c ok", &way.More{Services: 2, State: api.OK}, ""},
		{"even failing ones are too many", func(p *api.PeerStatus) {
			offers("a", "b")(p)
			p.Local = []api.Local{{Service: "b", Address: "127.0.0.1:1", Error: "in use"}}
		}, []api.ClusterService{imported("z/4", api.ServiceRefused, "PST0904"), imported("z/3", api.ServiceRefused, "PST0904"), imported("z/2", api.ServiceRefused, "PST0904")},
			"b 127.0.0.1:1 error, z/2 warning, z/3 warning", &way.More{Services: 2, Failing: 1, State: api.Warning}, "at this gateway"},
	} {
		s := well()
		p := &s.Peers[0]
		tc.change(p)
		w := way.Of(s, p, nil, tc.clusters)
		var got []string
		for _, n := range w.Services {
			if way.Other(n.Name) {
				got = append(got, strings.Join(strings.Fields(n.Name+" "+n.Address+" "+string(n.State)), " "))
			}
		}
		if got := strings.Join(got, ", "); got != tc.want || !reflect.DeepEqual(w.More, tc.more) {
			t.Errorf("%s: got  %s and %+v\nwant %s and %+v", tc.what, got, w.More, tc.want, tc.more)
		}
		place := ""
		if w.Break != nil {
			place = w.Break.Place
		}
		if place != tc.place {
			t.Errorf("%s: it breaks %q, want %q", tc.what, place, tc.place)
		}
	}
}

// A way costs little, whatever the peer has, and however many others there are.
func TestAWayOfManyServicesIsSmall(t *testing.T) {
	s := well()
	p := s.Peers[0]
	var clusters []api.ClusterService
	for i := range 500 {
		clusters = append(clusters, api.ClusterService{Service: fmt.Sprintf("shop/web%03d", 499-i), Direction: api.ServiceImported, Peer: "cloud", State: api.ServiceInUse})
	}
	for range 999 {
		s.Peers = append(s.Peers, p)
	}
	var w way.Way
	count := testing.AllocsPerRun(10, func() { w = way.Of(s, &p, nil, clusters) })
	if len(w.Services) != 7 || w.More.Services != 497 {
		t.Fatalf("%d services, and %+v", len(w.Services), w.More)
	}
	if kept, _ := json.Marshal(w); len(kept) > 4096 {
		t.Errorf("as JSON it takes %d bytes", len(kept))
	}
	if count > 100 {
		t.Errorf("it takes %v allocations", count)
	}
}

// What the peer reported before it stopped answering, and what was concluded from it, says nothing
// about the present. A table shows the same.
func TestWhatWasFoundBeforeTheBreakIsOfBefore(t *testing.T) {
	s := well()
	p := &s.Peers[0]
	p.Reachability.Outbound.Gateway = fails("gateway", catalogue.NothingAnswers, "probe").Verdict
	p.Reachability.Inbound.Auth = p.Reachability.Outbound.Gateway
	p.Reachability.Inbound.Gateway = fails("", catalogue.NotHeardByPeer, "probe").Verdict
	p.Reachability.Outbound.APIServer = api.Verdict{Verdict: api.Warning, Code: string(catalogue.Intermittent)}
	for _, tc := range []struct {
		direction, target string
		want              way.Sight
	}{
		{api.DirectionOutbound, api.ServiceAuth, way.Sight{Now: api.Unknown, Before: api.OK}},
		{api.DirectionOutbound, api.ServiceAPIServer, way.Sight{Now: api.Unknown, Before: api.Warning}},
		{api.DirectionOutbound, api.ServiceGateway, way.Sight{Now: api.Error}},
		{api.DirectionInbound, api.ServiceAuth, way.Sight{Now: api.Unknown}},
		{api.DirectionInbound, api.ServiceAPIServer, way.Sight{Now: api.Unknown, Before: api.OK}},
	} {
		if got := way.See(p, tc.direction, tc.target); got != tc.want {
			t.Errorf("%s %s: got %v, want %v", tc.direction, tc.target, got, tc.want)
		}
	}
	w := way.Of(s, p, nil, nil)
	for _, n := range w.Services {
		if got := (way.Sight{Now: n.State, Before: n.Before}); got != way.See(p, n.Direction, n.Name) {
			t.Errorf("%s %s is drawn as %v", n.Direction, n.Name, got)
		}
	}
	if f := w.Edges[1].Path; !f.Before || f.LossRatio != nil {
		t.Errorf("the figures of a path that is dead: %+v", f)
	}
	// If its packets arrive and ours do not, that is known about it.
	p.Reachability.Outbound.Gateway = fails("gateway", catalogue.NotHeardByPeer, "probe").Verdict
	p.Reachability.Inbound.Gateway = api.Verdict{Verdict: api.Unknown}
	if got := way.See(p, api.DirectionInbound, api.ServiceGateway); got.Now != api.OK {
		t.Errorf("the peer's packets arrive: got %v", got)
	}
}

// Auth that answers and issues no identity is where the fault is. The API server refuses the old
// one.
func TestAuthThatIssuesNothingIsTheBreak(t *testing.T) {
	for _, e := range []struct{ direction, place, want string }{
		{api.DirectionOutbound, "at auth of cloud", "outbound auth error, outbound apiServer error, inbound auth ok, inbound apiServer ok"},
		{api.DirectionInbound, "at auth of this gateway", "outbound auth ok, outbound apiServer ok, inbound auth error, inbound apiServer error"},
	} {
		s := well()
		p := &s.Peers[0]
		*p.Reachability.On(e.direction, api.ServiceAPIServer) = api.Verdict{Verdict: api.Error, Code: string(catalogue.IdentityExpired), Stage: "auth"}
		w := way.Of(s, p, nil, nil)
		if got := services(w); got != e.want {
			t.Errorf("%s: got  %s\nwant %s", e.direction, got, e.want)
		}
		if w.Break == nil || w.Break.Place != e.place {
			t.Errorf("%s: it breaks %+v, want %s", e.direction, w.Break, e.place)
		}
		for _, n := range w.Services {
			if got := (way.Sight{Now: n.State}); got != way.See(p, n.Direction, n.Name) {
				t.Errorf("%s %s is drawn as %v, and a table has %v", n.Direction, n.Name, got, way.See(p, n.Direction, n.Name))
			}
		}
	}
}

// A service's fault does not hide why a peer is silent.
func TestASilenceIsToldBesideAServicesFault(t *testing.T) {
	refused := []api.ClusterService{{Service: "shop/web", Direction: api.ServiceImported, Peer: "cloud", State: api.ServiceRefused, Code: "PST0904", Cause: "why"}}
	s := well()
	p := &s.Peers[0]
	p.State, p.Reason, p.Path = api.StateConnecting, "nothing heard for 2m0s", api.Path{Kind: api.PathNone}
	w := way.Of(s, p, nil, refused)
	if f := w.Edges[1].Fault; f == nil || f.Cause != p.Reason {
		t.Errorf("without a path: got %+v", f)
	}
	if w.Break == nil || w.Break.At != way.Service {
		t.Errorf("without a path it breaks %+v, want the only fault that a code tells", w.Break)
	}
	s = well()
	p = &s.Peers[0]
	p.UnconfirmedSince = &noon
	if w = way.Of(s, p, nil, refused); w.Break == nil || w.Break.Title != "what is sent is not answered" {
		t.Errorf("unconfirmed: it breaks %+v", w.Break)
	}
	if n := w.Services[len(w.Services)-1]; n.Fault == nil || n.State != api.Warning {
		t.Errorf("unconfirmed: the service is drawn as %+v", n)
	}
}

// The state of a peer that answers probes but no handshakes is unknown.
func TestAnswersToProbesAreTold(t *testing.T) {
	s := well()
	p := &s.Peers[0]
	p.State, p.Path.Proven = api.StateConnecting, &noon
	w := way.Of(s, p, []api.Check{fails("gateway", catalogue.PeerSilent, "handshake")}, nil)
	if n := w.Nodes[len(w.Nodes)-1]; !n.Probed || n.State != api.Unknown {
		t.Errorf("got %+v", n)
	}
	p.Path.Proven = nil
	w = way.Of(s, p, []api.Check{fails("gateway", catalogue.PeerSilent, "handshake")}, nil)
	if n := w.Nodes[len(w.Nodes)-1]; n.Probed {
		t.Errorf("without answers: got %+v", n)
	}
}

// A listener that could not be opened is a fault of this gateway, whatever its target.
func TestAListenerFailsHere(t *testing.T) {
	s := well()
	s.Peers[0].Local = []api.Local{{Service: "registry", Address: "127.0.0.1:5000", Error: "address already in use"}}
	w := way.Of(s, &s.Peers[0], nil, nil)
	if w.Break == nil || w.Break.Place != "at this gateway" || !strings.HasSuffix(services(w), "outbound registry error") {
		t.Errorf("it breaks %+v; services %s", w.Break, services(w))
	}
}

// Status and the last report of checks are from different moments: the newer verdict counts.
func TestTheNewerVerdictCounts(t *testing.T) {
	s := well()
	old := fails("gateway", catalogue.PeerSilent, "probe")
	before := noon.Add(-time.Minute)
	old.CheckedAt = &before
	if w := way.Of(s, &s.Peers[0], []api.Check{old}, nil); w.Break != nil {
		t.Errorf("a verdict that was overtaken breaks the way: %+v", w.Break)
	}
}

func TestFiguresAreOnTheEdgeThatLeavesThisSide(t *testing.T) {
	s := well()
	w := way.Of(s, &s.Peers[0], nil, nil)
	f := w.Edges[1].Path
	if w.Edges[0].Path != nil || f == nil || f.Address != "203.0.113.10:51820" || f.RTTSeconds != 0.012 || f.MTU != 1420 || f.LossRatio == nil || *f.LossRatio != 0.01 {
		t.Errorf("got %+v", f)
	}
	data, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind":"peerEdge","name":"firewall","address":"203.0.113.10:51820","source":"advertised","state":"ok"`, `"out":"ok","in":"ok","path":{"kind":"direct"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in %s", want, data)
		}
	}
}

// For arbitrary documents, a way is a chain, a broken one is never drawn as whole, and each fault
// leads to a break.
func TestEveryWayIsAChain(t *testing.T) {
	outcomes := []api.Outcome{api.OK, api.Warning, api.Error, api.Unknown, api.Off, "", "odd"}
	var codes []string
	for _, e := range catalogue.Codes() {
		codes = append(codes, string(e.Code))
	}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		pick := func(of ...string) string { return of[r.IntN(len(of))] }
		outcome := func() api.Outcome { return outcomes[r.IntN(len(outcomes))] }
		verdict := func() api.Verdict {
			return api.Verdict{Verdict: outcome(), Code: pick(append(codes, "")...), Stage: pick("", "probe", "ping", "tls", "x")}
		}
		targets := func() api.Targets {
			return api.Targets{Auth: verdict(), APIServer: verdict(), Gateway: verdict()}
		}
		s := &api.Status{Gateway: api.GatewayStatus{NAT: api.NAT{Mapping: pick("", "none", "endpoint-independent")}}, Peers: []api.PeerStatus{{
			Name: "cloud", State: api.PeerState(pick("connected", "connecting", "pending", "failed", "")),
			Path:         api.Path{Kind: pick("", "none", "direct", "relay"), Source: pick("", "host", "stun"), Relay: pick("", "turn")},
			Reachability: api.Reachability{Outbound: targets(), Inbound: targets()},
		}}}
		var checks []api.Check
		for range r.IntN(6) {
			checks = append(checks, api.Check{Name: pick("gateway", "auth", "relay", "path", "exposure", "upstream-apiServer", "odd"), Peer: pick("", "cloud", "hub"),
				Target: pick("", "gateway", "auth", "apiServer"), Direction: pick("", "own", "outbound", "inbound"), Verdict: verdict(), DependsOn: pick("", "", "own/exposure", "gateway")})
		}
		w := way.Of(s, &s.Peers[0], checks, nil)
		if len(w.Nodes) < 2 || len(w.Edges) != len(w.Nodes)-1 || w.Nodes[0].Kind != way.Here || w.Nodes[len(w.Nodes)-1].Kind != way.There {
			t.Fatalf("seed %d: no chain: %s", seed, drawn(w))
		}
		faults := 0
		for _, n := range slices.Concat(w.Nodes, w.Services) {
			if n.Fault != nil {
				faults++
				if n.State == api.OK {
					t.Errorf("seed %d: %s is ok, with the fault %+v", seed, n.Name, *n.Fault)
				}
			}
		}
		whole := true
		for _, e := range w.Edges {
			if e.Fault != nil {
				faults++
			}
			whole = whole && e.State() == api.OK
		}
		if (faults > 0) != (w.Break != nil) {
			t.Errorf("seed %d: %d faults, and the break is %+v", seed, faults, w.Break)
		}
		if p := &s.Peers[0]; whole && w.Nodes[len(w.Nodes)-1].State == api.OK && (p.Path.Kind == api.PathNone || p.State != api.StateConnected) && w.Break == nil {
			t.Errorf("seed %d: a peer without a path is drawn as reached: %s", seed, drawn(w))
		}
	}
}
