package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

type vector struct {
	Name                     string
	Report                   json.RawMessage
	Error                    string
	Gateway, Auth, APIServer string
}

func vectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []vector
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Targets returns what a reader shows of a report while its tunnel works.
func (r Report) Targets(reader Reader, arrived, now time.Time) api.Targets {
	tunnel := []verdict.Finding{{Name: api.ServiceGateway, Outcome: api.OK}}
	_, in := verdict.Correlate(now, nil, tunnel, r.Findings(reader, arrived, now))
	return verdict.Targets(in, verdict.Inbound)
}

// VerdictOf returns the reported verdict of one finding.
func VerdictOf(target string, v api.Verdict, p catalogue.Params, now time.Time) Verdict {
	return Tell([]verdict.Finding{{Name: target, Outcome: v.Verdict, Code: catalogue.Code(v.Code), Stage: v.Stage, Args: &p}}, now)[0]
}

// summary returns a verdict in a few words.
func summary(v api.Verdict) string {
	return strings.Join(strings.Fields(fmt.Sprint(v.Verdict, " ", v.Code, " ", v.Stage)), " ")
}

func TestVectors(t *testing.T) {
	kinds := map[string]error{"version": ErrVersion, "malformed": ErrMalformed}
	for _, v := range vectors(t) {
		r, err := Parse(v.Report)
		if !errors.Is(err, kinds[v.Error]) {
			t.Errorf("%s: got error %v, want %v", v.Name, err, kinds[v.Error])
			continue
		}
		if v.Error != "" {
			continue
		}
		got := r.Targets(reading(), noon, noon)
		for _, c := range []struct {
			target string
			got    api.Verdict
			want   string
		}{{"gateway", got.Gateway, v.Gateway}, {"auth", got.Auth, v.Auth}, {"apiServer", got.APIServer, v.APIServer}} {
			if summary(c.got) != c.want {
				t.Errorf("%s: %s is %q (%s), want %q", v.Name, c.target, summary(c.got), c.got.Cause, c.want)
			}
			if c.got.Verdict != api.OK && (c.got.Cause == "" || c.got.Fix == "") {
				t.Errorf("%s: %s has no cause or no fix: %+v", v.Name, c.target, c.got)
			}
		}
	}
}

// reading returns a gateway that offers everything, and that is known at its public address.
func reading() Reader {
	return Reader{Peer: "edge", Offers: []string{api.ServiceAuth, api.ServiceAPIServer}, Own: func() catalogue.Shown {
		return catalogue.Shown{Port: 51999, NAT: catalogue.NAT{Mapping: "none"}, Candidates: []catalogue.Candidate{
			{Address: "203.0.113.9:51999", Source: api.SourceHost}, {Address: "[2001:db8::9]:51999", Source: api.SourceHost},
		}}
	}}
}

// everything returns parameters with a valid value for each one that may be reported.
func everything() catalogue.Params {
	p := catalogue.Params{
		Address: "api.example.net:6443", Endpoints: []string{"192.0.2.1:51820"},
		ServerName: "api", Names: []string{"*.example.net"},
		Issuer: "k3s-server-ca@1690000000", Authorities: []string{"kubernetes"}, Status: 403, Age: time.Minute, Timeout: 5 * time.Second,
		NotBefore: noon, NotAfter: noon.AddDate(1, 0, 0), Version: "1.0", OwnVersion: "2.1", Limit: 7,
	}
	p.ServiceParams = catalogue.ServiceParams{Token: true, Failure: catalogue.FailureTimeout, Remote: "192.0.2.1:6443",
		Took: time.Second, Way: time.Millisecond, Beside: catalogue.BesideWorks, BesideAddress: "[fd00::1]:6443"}
	p.GatewayParams = catalogue.GatewayParams{
		From: "[2001:db8::1]:1", Seen: noon.Add(-3 * time.Second),
		PeerShut: true, Candidates: []catalogue.Candidate{{Address: "192.0.2.3:1", Source: "stun", State: "failed"}},
		Stamp: noon, Newest: noon, Was: []string{"192.0.2.4"}, Now: []string{"192.0.2.5"},
		Sent: 20, Lost: 1, Jitter: time.Millisecond, MTU: 1280, LinkMTU: 1420, Size: 1300,
		NAT: catalogue.NAT{Mapping: "none", Filtering: "unknown"}, PeerNAT: catalogue.NAT{Mapping: "endpoint-dependent", Filtering: "address-dependent"},
		Relay: "turn.example.net:3478",
	}
	p.RootCode, p.RecentParams = catalogue.PeerSilent, catalogue.RecentParams{Checks: 20, Failures: 4, LastFailure: 40 * time.Second}
	return p
}

// full returns a report with every value set.
func full() Report {
	return Report{
		Version: Version, At: noon, Gateway: "edge",
		Verdicts: []Verdict{
			{Target: "gateway", Outcome: api.Warning, Code: catalogue.RelayInUse, Stage: "probe", Params: catalogue.Share(everything(), noon), RTT: 12 * time.Millisecond, Age: time.Second},
			{Target: "apiServer", Outcome: api.Off, Code: catalogue.APIServerOff},
		},
		Hears: Hears{time.Second, Never, 0}, NAT: catalogue.NAT{Mapping: "none", Filtering: "none"},
		Offers: MarkOf("auth", "apiServer"), Identity: NoIdentity,
	}
}

func TestEveryValueSurvivesTheWire(t *testing.T) {
	want := full()
	for _, part := range []reflect.Value{reflect.ValueOf(want), reflect.ValueOf(want.Verdicts[0])} {
		for i := range part.NumField() {
			if part.Field(i).IsZero() {
				t.Errorf("the test leaves %s.%s out", part.Type(), part.Type().Field(i).Name)
			}
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[catalogue.Params]()) {
		if f.Tag.Get("told") != "" && reflect.ValueOf(everything()).FieldByIndex(f.Index).IsZero() {
			t.Errorf("the test leaves Params.%s out", f.Name)
		}
	}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v (%v)\nwant %+v\nfrom %s", got, err, want, b)
	}
	if back := got.Verdicts[0].Params.Params(noon); !reflect.DeepEqual(back, everything()) {
		t.Errorf("parameters lose something:\ngot  %+v\nwant %+v", back, everything())
	}
}

// What comes and goes is told as ok, which is all that an earlier version takes from it.
func TestWhatComesAndGoesIsTold(t *testing.T) {
	p := catalogue.Params{Address: "[fd00::1]:6443", Status: 503, Path: "/livez"}
	p.RootCode, p.RecentParams = catalogue.APIServerHTTP, catalogue.RecentParams{Checks: 20, Failures: 4, LastFailure: 40 * time.Second}
	told := func(target string, code catalogue.Code, p catalogue.Params) []verdict.Finding {
		r := full()
		r.Verdicts = Tell([]verdict.Finding{{Name: target, Target: target, Outcome: api.Warning, Code: code, Args: &p, Stage: "http", At: noon}}, noon)
		b, err := r.Encode()
		if err != nil || !strings.Contains(string(b), `"outcome":"ok"`) {
			t.Fatalf("%s (%v)", b, err)
		}
		got, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		return got.Findings(reading(), noon, noon)
	}
	got, _ := verdict.Find(told("apiServer", catalogue.Intermittent, p), "inbound-apiServer")
	v := got.Verdict()
	if v.Verdict != api.Warning || v.Code != string(catalogue.Intermittent) ||
		!strings.HasPrefix(v.Cause, "it works now, but 4 of the last 20 checks failed, the last 40s ago with PST0304: the API server of this gateway") ||
		!strings.Contains(v.Fix, "here see which part of the API server fails") {
		t.Errorf("got %+v", v)
	}
	// A peer cannot tell this about anything else that way, nor of what is decided here.
	for target, root := range map[string]catalogue.Code{"auth": catalogue.APIServerHTTP, "apiServer": catalogue.APIServerOff, "gateway": catalogue.TicketAlarm} {
		for _, root := range []catalogue.Code{root, "", catalogue.Intermittent, "PST0999"} {
			p.RootCode = root
			if got, _ := verdict.Find(told(target, catalogue.Intermittent, p), "inbound-"+target); got.Outcome != api.OK || got.Verdict().Code != "" {
				t.Errorf("%s of %s: got %+v", root, target, got.Verdict())
			}
		}
	}
}

// Parameters are converted to the reader's view: the writer's NAT is the peer's, and only the
// reader's own addresses are named.
func TestParametersAreReadFromThisEnd(t *testing.T) {
	own := catalogue.Shown{NAT: catalogue.NAT{Mapping: "address-dependent"}, Port: 51999, Candidates: []catalogue.Candidate{{Address: "192.0.2.3:1"}}}
	reader := reading()
	reader.Reached = func() string { return "192.0.2.9:40582" }
	got := reader.told("gateway", everything(), own)
	if !got.Inbound || got.Peer != "edge" || got.Service != "gateway" || got.Port != 51999 || got.Reached != "192.0.2.9:40582" || got.NAT.Mapping != "address-dependent" ||
		got.PeerNAT != everything().NAT || len(got.Endpoints) != 0 || len(got.Candidates) != 1 {
		t.Errorf("got %+v", got)
	}
}

// Each parameter is either reported or kept here, by an explicit decision.
func TestEveryParameterIsToldOrKept(t *testing.T) {
	// What clusters, zones, the LAN and routers say is only in own checks, which are not reported
	// to peers.
	own := "Namespace Object Selector Account Verbs Resource Manager Reverts Hold Domain Record PeerName Known Found Router Mapped Loss Rate By Unit"
	kept := strings.Fields(own + " Peer Inbound IssuerKey Service NoPath Upstream Path File Line Field Detail Key Server Used Max Drops Full Configured Signed Direct Own Set Port Skew Worked Awaited User Heard Disputed Reached Removed Starts Interruptions Period Longest OwnWas OwnNow OwnSince RelayAnswers Filtered FilteredIn Root RootOutcome Former Joined Resolvers")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[catalogue.Params]()) {
		if told := f.Tag.Get("told") != ""; !f.Anonymous && told == slices.Contains(kept, f.Name) {
			t.Errorf("catalogue.Params.%s is told: %v, kept: %v", f.Name, told, !told)
		}
	}
}

// The largest report of our own checks fits.
func TestTheLargestReportFits(t *testing.T) {
	long := strings.Repeat("a", 1000)
	p := catalogue.Params{Address: long, ServerName: long, Issuer: strings.Repeat("a", 64), Detail: long}
	p.BesideAddress, p.Remote, p.From, p.Relay = long, long, "[2001:db8:1111:2222:3333:4444:5555:6666]:51820", strings.Repeat("r", 64)
	for range 10_000 {
		p.Names = append(p.Names, strings.Repeat("n", 64))
		p.Authorities = append(p.Authorities, strings.Repeat("n", 64))
		p.Endpoints = append(p.Endpoints, p.From)
		p.Own = append(p.Own, p.From)
		p.Was = append(p.Was, "2001:db8:1111:2222:3333:4444:5555:6666")
		p.Candidates = append(p.Candidates, catalogue.Candidate{Address: p.From, Source: "advertised", State: "selected", Reason: long})
	}
	p.Now = p.Was
	r := Report{At: noon, Gateway: strings.Repeat("g", api.MaxNameLength)}
	for _, target := range []string{"gateway", "auth", "apiServer"} {
		r.Verdicts = append(r.Verdicts, VerdictOf(target, api.Verdict{Verdict: api.Error, Code: "PST0101", Stage: "handshake", Cause: long}, p, noon))
	}
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(b); err != nil {
		t.Error(err)
	}
	t.Logf("%d bytes of %d", len(b), MaxSize)
}

func TestParametersAreToldWhereThereAreSome(t *testing.T) {
	failed := api.Verdict{Verdict: api.Error, Code: string(catalogue.PeerSilent)}
	if v := VerdictOf("gateway", failed, catalogue.Params{Timeout: time.Second}, noon); v.Params != `{"timeout":1}` {
		t.Errorf("got the parameters %+v, want the timeout", v.Params)
	}
	if v := VerdictOf("gateway", failed, catalogue.Params{}, noon); v.Params != "" {
		t.Errorf("got the parameters %+v, want none", v.Params)
	}
	if v := VerdictOf("gateway", api.Verdict{Verdict: api.OK}, catalogue.Params{Timeout: time.Second}, noon); v.Params != "" {
		t.Errorf("got the parameters %+v of what works", v.Params)
	}
}

func TestSameLeavesTimesOut(t *testing.T) {
	a, b := full(), full()
	p := everything()
	p.Age = 13
	b.At, b.Hears.Probe, b.Verdicts[0].Age, b.Verdicts[0].RTT, b.Verdicts[0].Params = noon.Add(time.Hour), 7, 9, 11, catalogue.Share(p, noon)
	if a.Verdicts[0].Params == b.Verdicts[0].Params || !a.Same(b) {
		t.Error("a report of another time differs")
	}
	p.Lost++
	b.Verdicts[0].Params = catalogue.Share(p, noon)
	if a.Same(b) {
		t.Error("a report of another loss does not differ")
	}
}

func TestWhatIsOldIsUnknownAndSaysHowOld(t *testing.T) {
	r := Report{Gateway: "edge", At: noon, Verdicts: []Verdict{{Target: "gateway", Outcome: api.OK, Age: time.Minute},
		{Target: "auth", Outcome: api.Error, Code: catalogue.AuthTimeout, Age: 14 * time.Minute}}}
	got := r.Targets(reading(), noon, noon.Add(14*time.Minute))
	if got.Gateway.Verdict != api.OK || !got.Gateway.CheckedAt.Equal(noon.Add(-time.Minute)) {
		t.Errorf("after 14 min: got %+v", got.Gateway)
	}
	if got.Auth.Verdict != api.Unknown || !strings.Contains(got.Auth.Cause, "28m0s old") || !strings.Contains(got.Auth.Cause, "error, PST0202") {
		t.Errorf("a check of 28 min ago: got %+v", got.Auth)
	}
	got = r.Targets(reading(), noon, noon.Add(14*time.Minute+time.Second))
	if got.Gateway.Verdict != api.Unknown || !strings.Contains(got.Gateway.Cause, "15m0s old (then: ok)") {
		t.Errorf("after 15 min: got %+v", got.Gateway)
	}
}

// A peer can only report about reaching us, whatever code it sends.
func TestAPeerInventsNothingAboutOthers(t *testing.T) {
	seen := map[string]int{}
	for _, e := range catalogue.Codes() {
		for _, target := range []string{"gateway", "auth", "apiServer"} {
			r := Report{Verdicts: []Verdict{{Target: target, Outcome: api.Error, Code: e.Code}}}
			got := r.Targets(reading(), noon, noon)
			v := map[string]api.Verdict{"gateway": got.Gateway, "auth": got.Auth, "apiServer": got.APIServer}[target]
			if v.Verdict == api.Error {
				seen[target]++
			}
			if c := string(e.Code); (c[:5] == "PST07" || c[:5] == "PST08") && v.Verdict != api.Unknown {
				t.Errorf("%s of %s was taken: %+v", c, target, v)
			}
		}
	}
	if seen["gateway"] == 0 || seen["auth"] == 0 || seen["apiServer"] == 0 {
		t.Errorf("no code was taken: %v", seen)
	}
	for _, c := range []catalogue.Code{catalogue.TicketAlarm, catalogue.StunUnreachable, catalogue.StunOutvoted, catalogue.TurnUnreachable, catalogue.UpstreamRefused, catalogue.PeerServiceDown, catalogue.StateExposed} {
		if about("gateway", c) || about("auth", c) || about("apiServer", c) {
			t.Errorf("%s counts as being about reaching us", c)
		}
	}
}

func TestACodeThatIsNotKnownIsNamed(t *testing.T) {
	got := Report{Verdicts: []Verdict{{Target: "auth", Outcome: api.Error, Code: "PST0299"}}}.Targets(reading(), noon, noon).Auth
	if !strings.Contains(got.Cause, "code PST0299 is not known to this version") || got.Verdict != api.Error {
		t.Errorf("got %+v", got)
	}
}

// An unknown verdict follows from an earlier failing one of the same report.
func TestWhatWasNotTriedFollowsFromWhatFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		gateway Verdict
		auth    []Verdict
		want    string
	}{
		{"the gateway fails", Verdict{Target: "gateway", Outcome: api.Error, Code: catalogue.NotHeardByPeer}, []Verdict{{Target: "auth", Outcome: api.Unknown}},
			"not known while inbound-gateway fails (PST0106)"},
		{"for a reason that is not taken", Verdict{Target: "gateway", Outcome: api.Error, Code: catalogue.TicketAlarm}, []Verdict{{Target: "auth", Outcome: api.Unknown}},
			"not known while inbound-gateway fails"},
		{"the gateway works", Verdict{Target: "gateway", Outcome: api.OK}, []Verdict{{Target: "auth", Outcome: api.Unknown}}, "edge could not tell"},
		{"nothing is said of auth", Verdict{Target: "gateway", Outcome: api.OK}, nil, "the report of edge does not mention auth"},
		{"nor why", Verdict{Target: "gateway", Outcome: api.OK}, []Verdict{{Target: "auth", Outcome: api.Error}}, "edge reports this without saying why"},
		{"about something else", Verdict{Target: "gateway", Outcome: api.OK}, []Verdict{{Target: "auth", Outcome: api.Error, Code: catalogue.TLSFailed}},
			"edge reports PST0504, which is not about reaching auth here"},
		{"what was", Verdict{Target: "gateway", Outcome: api.Error, Age: time.Hour}, []Verdict{{Target: "auth", Outcome: api.Unknown, Age: time.Hour}},
			"the last report of edge is 1h0m0s old (then: unknown)"},
	} {
		got := Report{Verdicts: append([]Verdict{c.gateway}, c.auth...)}.Targets(reading(), noon, noon).Auth
		if got.Cause != c.want || got.Fix == "" || got.Code != "" {
			t.Errorf("%s: got %+v, want %q", c.name, got, c.want)
		}
	}
}

// A peer cannot tell counts that cannot be.
func TestCountsOfWhatComesAndGoesArePossible(t *testing.T) {
	for _, n := range []catalogue.RecentParams{{Checks: 20}, {}, {Checks: 3, Failures: 4}, {Failures: 1}, {Checks: 1, Failures: -1}} {
		p := catalogue.Params{Status: 503}
		p.RootCode, p.RecentParams = catalogue.AuthHTTP, n
		v := VerdictOf("auth", api.Verdict{Verdict: api.Warning, Code: string(catalogue.Intermittent), Stage: "http"}, p, noon)
		if got := (Report{Verdicts: []Verdict{v}}).Targets(reading(), noon, noon).Auth; got.Verdict != api.OK || got.Code != "" || got.Stage != "" {
			t.Errorf("%+v: got %+v", n, got)
		}
	}
}
