package verdict

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// found returns a finding about the peer cloud: own, inbound or outbound by its name.
func found(name string, o api.Outcome, c catalogue.Code, rests ...string) Finding {
	f := Finding{Name: name, Target: api.ServiceGateway, Peer: "cloud", Direction: api.DirectionOutbound, Outcome: o, Code: c, Rests: rests, Stage: "probe", At: noon}
	for _, target := range []string{api.ServiceAuth, api.ServiceAPIServer} {
		if strings.Contains(name, target) {
			f.Target = target
		}
	}
	if own, ok := strings.CutPrefix(name, "own/"); ok {
		f.Name, f.Peer, f.Direction = own, "", api.DirectionOwn
	}
	if strings.HasPrefix(name, "inbound-") {
		f.Direction, f.Heard = api.DirectionInbound, noon.Add(-time.Minute)
	}
	return f
}

// since returns a finding made a moment later.
func since(f Finding) Finding {
	f.At = f.At.Add(time.Second)
	return f
}

// inShort formats findings as "NAME OUTCOME" with the code, or with an arrow and the root.
func inShort(list []Finding) string {
	var out []string
	for _, f := range list {
		s := fmt.Sprintf("%s %s %s", f.Name, f.Outcome, f.Fault())
		if f.Because != nil {
			s = f.Name + " <- " + f.Because.Ref()
		}
		out = append(out, strings.TrimSpace(s))
	}
	return strings.Join(out, ", ")
}

func TestTheFirstThatFailsIsTheRoot(t *testing.T) {
	const ok, warning, failed, unknown, off = api.OK, api.Warning, api.Error, api.Unknown, api.Off
	dropped := found("own/resources", warning, catalogue.SocketBufferSmall).With(func(p *catalogue.Params) { p.Drops = 12 })
	for _, c := range []struct {
		name         string
		own, out, in []Finding
		want         string
	}{
		{"nothing fails", []Finding{found("own/exposure", ok, "")}, []Finding{found("gateway", ok, "", "own/exposure")}, nil, "gateway ok"},
		{"what is not known explains nothing", nil, []Finding{found("gateway", failed, catalogue.PeerMustDial, "own/exposure")}, nil, "gateway error PST0104"},
		{"the first of two", []Finding{found("own/nat", failed, catalogue.NoWayIn), found("own/socket", failed, catalogue.NothingListens)},
			[]Finding{found("gateway", failed, catalogue.PeerSilent, "own/socket", "own/nat")}, nil, "gateway <- own/socket"},
		{"the second, where the first is well", []Finding{found("own/nat", failed, catalogue.NoWayIn), found("own/socket", ok, "")},
			[]Finding{found("gateway", failed, catalogue.PeerSilent, "own/socket", "own/nat")}, nil, "gateway <- own/nat"},
		{"what is not tried waits for what waits", []Finding{found("own/exposure", failed, catalogue.NoWayIn)},
			[]Finding{found("gateway", failed, catalogue.PeerMustDial, "own/exposure"), found("auth", unknown, catalogue.NotTried, "gateway")},
			nil, "gateway <- own/exposure, auth <- gateway"},
		{"the same is found of both", []Finding{found("own/exposure", failed, catalogue.NoWayIn)},
			[]Finding{found("gateway", failed, catalogue.NoWayIn, "own/exposure")}, nil, "gateway error PST0401"},
		{"a small buffer loses nothing by itself", []Finding{found("own/resources", warning, catalogue.SocketBufferSmall)},
			[]Finding{found("gateway", warning, catalogue.PacketsLost, "own/resources")}, nil, "gateway warning PST0112"},
		{"but where it dropped something", []Finding{dropped},
			[]Finding{found("gateway", warning, catalogue.PacketsLost, "own/resources")}, nil, "gateway <- own/resources"},
		{"so does a machine that refuses to send some", []Finding{found("own/resources-sending", warning, catalogue.SendFails).With(func(p *catalogue.Params) { p.Drops = 10 })},
			[]Finding{found("gateway", warning, catalogue.PacketsLost, "own/resources-sending", "own/resources")}, nil, "gateway <- own/resources-sending"},
		{"an identity that auth would issue", nil,
			[]Finding{found("auth", failed, catalogue.AuthTimeout), found("apiServer-direct", failed, catalogue.IdentityMissing, "auth")}, nil,
			"auth error PST0202, apiServer-direct <- auth"},
		{"a warning of auth keeps no identity back", nil,
			[]Finding{found("auth", warning, catalogue.AuthTimeout), found("apiServer-direct", failed, catalogue.IdentityMissing, "auth")}, nil,
			"auth warning PST0202, apiServer-direct error PST0505"},
		{"reports come through the tunnel", nil, []Finding{found("gateway", failed, catalogue.PeerSilent)},
			[]Finding{found("inbound-gateway", ok, ""), found("inbound-auth", failed, catalogue.AuthTimeout), found("inbound-apiServer", off, catalogue.APIServerOff)},
			"gateway error PST0101, inbound-gateway <- gateway, inbound-auth <- gateway, inbound-apiServer off PST0307"},
		{"and so does what it disputes", nil, []Finding{found("gateway", failed, catalogue.PeerSilent)},
			[]Finding{found("inbound-auth", off, catalogue.AuthOff).With(func(p *catalogue.Params) { p.Disputed = true }), found("inbound-apiServer", off, catalogue.ReportBare)},
			"gateway error PST0101, inbound-auth <- gateway, inbound-apiServer <- gateway"},
		{"but none of a plain WireGuard peer", nil, []Finding{found("gateway", failed, catalogue.PeerSilent)},
			[]Finding{found("inbound-gateway", unknown, catalogue.ReportsNever), found("inbound-auth", unknown, catalogue.ReportsUnsupported)},
			"gateway error PST0101, inbound-gateway unknown, inbound-auth unknown"},
		{"whose root is here", []Finding{found("own/exposure", failed, catalogue.NoWayIn)}, []Finding{found("gateway", failed, catalogue.PeerMustDial, "own/exposure")},
			[]Finding{found("inbound-gateway", ok, "")}, "gateway <- own/exposure, inbound-gateway <- own/exposure"},
		{"nobody has approved the peer", nil, []Finding{found("gateway", warning, catalogue.AwaitingApproval)},
			[]Finding{found("inbound-gateway", unknown, catalogue.ReportsMissing)}, "gateway warning PST0105, inbound-gateway <- gateway"},
		{"before the first round a report stands", nil, nil, []Finding{found("inbound-gateway", ok, "")}, "inbound-gateway ok"},
		{"both ends see it", nil, []Finding{found("gateway", warning, catalogue.RelayInUse)},
			[]Finding{found("inbound-gateway", warning, catalogue.RelayInUse)}, "gateway warning PST0411, inbound-gateway <- gateway"},
		{"each end has its own", nil, []Finding{found("gateway", ok, ""), found("mtu", warning, catalogue.PathMTUSmall)},
			[]Finding{found("inbound-gateway", warning, catalogue.PathMTUSmall)}, "gateway ok, mtu warning PST0601, inbound-gateway warning PST0601"},
		{"the server here is down", []Finding{found("own/upstream-apiServer", failed, catalogue.UpstreamRefused)}, []Finding{found("gateway", ok, "")},
			[]Finding{found("inbound-apiServer", failed, catalogue.APIServerRefused, "own/upstream-apiServer")}, "gateway ok, inbound-apiServer <- own/upstream-apiServer"},
		{"a warning that breaks a service is an error", nil, []Finding{found("gateway", ok, ""), found("mtu", warning, catalogue.PathMTUSmall),
			found("auth", failed, catalogue.AuthTimeout, "mtu")}, nil, "gateway ok, mtu error PST0601, auth <- mtu"},
		{"one that another warning rests on is none", nil, []Finding{found("gateway", warning, catalogue.PacketsLost), found("mtu", warning, catalogue.PathMTUSmall, "gateway")},
			nil, "gateway warning PST0112, mtu <- gateway"},
		{"an echo since then refutes the peer", nil, []Finding{since(found("gateway", ok, ""))},
			[]Finding{found("inbound-gateway", failed, catalogue.RelayLost), found("inbound-auth", unknown, catalogue.NotTried, "inbound-gateway")},
			"gateway ok, inbound-gateway unknown, inbound-auth unknown"},
		{"not that two take turns", nil, []Finding{since(found("gateway", ok, ""))}, []Finding{found("inbound-gateway", failed, catalogue.DuplicateKey)},
			"gateway ok, inbound-gateway error PST0113"},
		{"the peer did not try", nil, []Finding{found("gateway", ok, "")},
			[]Finding{found("inbound-gateway", failed, catalogue.NotHeardByPeer), found("inbound-auth", unknown, catalogue.NotTried, "inbound-gateway")},
			"gateway ok, inbound-gateway error PST0106, inbound-auth <- inbound-gateway"},
		{"a warning does not keep it from trying", nil, []Finding{found("gateway", ok, "")},
			[]Finding{found("inbound-gateway", warning, catalogue.PathMTUSmall), found("inbound-auth", unknown, catalogue.NotTried, "inbound-gateway")},
			"gateway ok, inbound-gateway warning PST0601, inbound-auth unknown"},
	} {
		given := fmt.Sprintf("%+v", [][]Finding{c.own, c.out, c.in})
		out, in := Correlate(noon, c.own, c.out, c.in)
		if got := inShort(slices.Concat(out, in)); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.name, got, c.want)
		}
		again, heard := Correlate(noon, c.own, out, in)
		for i, f := range slices.Concat(out, in) {
			if same := slices.Concat(again, heard)[i]; !reflect.DeepEqual(same.Check(), f.Check()) {
				t.Errorf("%s: a second correlation changes it: %+v", c.name, same)
			}
		}
		if after := fmt.Sprintf("%+v", [][]Finding{c.own, c.out, c.in}); after != given {
			t.Errorf("%s: the arguments have changed", c.name)
		}
	}
}

// A dependent finding names its root, and has the root's fix.
func TestWordsOfWhatFollows(t *testing.T) {
	gateway := found("gateway", api.Error, catalogue.PeerSilent)
	_, fix := catalogue.Render(catalogue.PeerSilent, catalogue.Params{Peer: "cloud"})
	heard := found("inbound-auth", api.Error, catalogue.AuthTimeout).With(func(p *catalogue.Params) { p.Heard = true })
	out, in := Correlate(noon, nil, []Finding{gateway, found("auth", api.Unknown, catalogue.NotTried, "gateway"),
		found("auth-direct", api.OK, "").With(func(*catalogue.Params) {})}, []Finding{heard})
	for _, c := range []struct {
		f     Finding
		cause string
	}{
		{out[1], "not known while gateway fails (PST0101); outside the tunnel it works"},
		{in[0], "not known while gateway fails (PST0101): reports come through the tunnel, and the last one came 1m0s ago"},
	} {
		got := c.f.Check()
		if got.Cause != c.cause || got.Fix != "fix gateway first; "+fix.String() || got.Code != "" || got.Verdict.Verdict != api.Unknown || got.DependsOn != "gateway" {
			t.Errorf("%s: got %+v", c.f.Name, got)
		}
	}
	if in[0].Stage != "" || !in[0].At.Equal(noon) {
		t.Errorf("an outdated report results in %+v", in[0])
	}
}

// A report has a summary. One about a single peer includes this gateway's own findings on which the
// peer's depend.
func TestAReportOnOnePeer(t *testing.T) {
	own := []Finding{found("own/exposure", api.Error, catalogue.NoWayIn), found("own/clock", api.OK, "")}
	peers := []Peer{{Name: "cloud", Outbound: []Finding{found("gateway", api.Error, catalogue.PeerMustDial, "own/exposure")}}}
	for only, want := range map[bool]int{false: 3, true: 2} {
		r := Report("edge", noon, own, peers, only)
		if len(r.Checks) != want || r.Summary.Error != 1 || r.Summary.Unknown != 1 || r.Checks[0].Name != "exposure" || r.Checks[want-1].DependsOn != "own/exposure" {
			t.Errorf("about one: %v: got %+v", only, r)
		}
	}
}

// In a status, a peer's fault that depends on this gateway's own shows that root, as in a check.
// The worst of the other checks is shown beside it.
func TestAStatusShowsTheSameRootAsACheck(t *testing.T) {
	own := []Finding{found("own/network", api.Error, catalogue.LinkDown), found("own/exposure", api.OK, "")}
	v := NewView(noon, own)
	for _, name := range []string{"cloud", "hub"} {
		gateway := found("gateway", api.Error, catalogue.HandshakeStale, "own/network")
		mtu := found("mtu", api.Warning, catalogue.PathMTUSmall)
		r := v.Add(Peer{Name: name, Outbound: []Finding{gateway, mtu, found("auth", api.Unknown, catalogue.NotTried, "gateway")}}, Inside)
		g, root := r.Outbound.Gateway, own[0].Verdict()
		if g.Verdict != api.Error || g.Code != string(catalogue.LinkDown) || g.Cause != root.Cause || g.Fix != root.Fix || !g.CheckedAt.Equal(noon) {
			t.Errorf("of %s: got %+v, want the root %+v", name, g, root)
		}
		if a := r.Outbound.Auth; a.Verdict != api.Unknown || !strings.Contains(a.Cause, "while gateway fails") {
			t.Errorf("of auth of %s: got %+v", name, a)
		}
		if r.Beside != api.Warning {
			t.Errorf("beside the endpoints of %s the worst is %q, want its mtu's warning", name, r.Beside)
		}
	}
	var got []string
	for _, c := range v.Problems() {
		got = append(got, c.Code+" "+c.Name)
	}
	if want := []string{"PST0121 network", "PST0601 mtu", "PST0601 mtu"}; !slices.Equal(got, want) {
		t.Errorf("else is wrong: %v, want %v", got, want)
	}
}

// A fault that makes a peer unreachable is an error, so that it is not overlooked.
func TestARootOfAnUnreachablePeerIsAnError(t *testing.T) {
	own := []Finding{found("own/exposure-turn", api.Warning, catalogue.TurnUnreachable)}
	for _, c := range []struct {
		gateway Finding
		want    api.Outcome
	}{
		{found("gateway", api.Error, catalogue.RelayLost, "own/exposure-turn"), api.Error},
		{found("gateway", api.OK, "", "own/exposure-turn"), api.Warning},
	} {
		r := Report("edge", noon, own, []Peer{{Name: "cloud", Outbound: []Finding{c.gateway}}}, false)
		if r.Checks[0].Verdict.Verdict != c.want || (r.Summary.Error > 0) != (c.want == api.Error) {
			t.Errorf("beside a gateway that is %s: got %+v, want %s", c.gateway.Outcome, r.Checks[0], c.want)
		}
	}
	if own[0].Outcome != api.Warning {
		t.Error("the arguments have changed")
	}
}

// Rendering comes last: neither checks nor the reader of reports produce or parse texts.
func TestFindingsArePutIntoWordsHereAlone(t *testing.T) {
	words := regexp.MustCompile(`catalogue\.Render\(|api\.(Verdict|Targets|Check)\b|\.(Cause|Fix|Steps) ?[+:=]?= `)
	for _, p := range []string{"check", "report"} {
		files, err := filepath.Glob(filepath.Join("..", p, "*.go"))
		if err != nil || len(files) < 5 {
			t.Fatalf("%d files of %s: %v", len(files), p, err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(text), "\n") {
				if code, _, _ := strings.Cut(line, "//"); !strings.HasSuffix(name, "_test.go") && words.MatchString(code) {
					t.Errorf("%s:%d: %s", name, i+1, strings.TrimSpace(line))
				}
			}
		}
	}
}

// Of what comes and goes both inside and outside the tunnel, only the same failures are one fault.
func TestWhatComesAndGoesOutsideIsAnotherFault(t *testing.T) {
	of := func(name string, root catalogue.Code) Finding {
		return found(name, api.Warning, catalogue.Intermittent).With(func(p *catalogue.Params) { p.RootCode = root })
	}
	for outside, want := range map[catalogue.Code]string{
		catalogue.AuthRefused:        "auth warning PST0119, auth-direct <- auth",
		catalogue.AuthURLUnreachable: "auth warning PST0119, auth-direct warning PST0119",
	} {
		out, _ := Correlate(noon, nil, []Finding{of("auth", catalogue.AuthRefused), of("auth-direct", outside)}, nil)
		if got := inShort(out); got != want {
			t.Errorf("with %s outside: got %s, want %s", outside, got, want)
		}
	}
}

// What works now explains no failure, but explains that what rests on it comes and goes. Of what
// both ends find to come and go, only the tunnel is the same.
func TestWhatComesAndGoesExplainsNoFailure(t *testing.T) {
	const code, upstream = catalogue.Intermittent, "own/upstream-apiServer"
	tunnel := found("gateway", api.OK, "")
	for _, c := range []struct {
		name    string
		out, in Finding
		want    string // of the inbound finding
	}{
		{"a failure", tunnel, found("inbound-apiServer", api.Error, catalogue.APIServerRefused, upstream), "inbound-apiServer error PST0301"},
		{"a service of what comes and goes here", tunnel, found("inbound-apiServer", api.Warning, code, upstream), "inbound-apiServer <- " + upstream},
		{"the services of both", found("apiServer", api.Warning, code), found("inbound-apiServer", api.Warning, code), "inbound-apiServer warning PST0119"},
		{"the tunnel", found("gateway", api.Warning, code), found("inbound-gateway", api.Warning, code), "inbound-gateway <- gateway"},
		{"another check of the tunnel", found("relay", api.Warning, code), found("inbound-gateway", api.Warning, code), "inbound-gateway warning PST0119"},
	} {
		_, in := Correlate(noon, []Finding{found(upstream, api.Warning, code)}, []Finding{c.out}, []Finding{c.in})
		if got := inShort(in); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
