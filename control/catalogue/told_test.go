package catalogue

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// all returns a value for every parameter that may be shared.
func all() Params {
	p := full()
	p.Remote, p.Issuer, p.Failure, p.Beside, p.BesideAddress = "192.0.2.1:6443", "k3s-server-ca@1690000000", FailureTimeout, BesideWorks, "[fd00::1]:6443"
	p.Took, p.Way, p.Token, p.PeerShut = time.Second, time.Millisecond, true, true
	p.Seen = noon.Add(-3 * time.Second)
	p.Candidates[0].Reason = ""
	p.RecentParams = RecentParams{Checks: 20, Failures: 4, LastFailure: 40 * time.Second}
	return p
}

func TestWhatIsToldIsHeard(t *testing.T) {
	var want Params
	for _, f := range schema() {
		from := reflect.ValueOf(all()).FieldByIndex(f.index)
		if from.IsZero() {
			t.Errorf("the test leaves %s out", f.name)
		}
		reflect.ValueOf(&want).Elem().FieldByIndex(f.index).Set(from)
	}
	shared := Share(all(), noon)
	parsed, err := ParseShared([]byte(shared))
	if err != nil || parsed != shared {
		t.Fatalf("%s is parsed as %s (%v)", shared, parsed, err)
	}
	if got := parsed.Params(noon); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := parsed.Params(noon.Add(time.Hour)).Seen; !got.Equal(noon.Add(time.Hour - 3*time.Second)) {
		t.Errorf("what was seen 3 s before the report was seen at %s", got)
	}
}

// Each parameter changes the result, and is also shared alone.
func TestEveryToldParameterCounts(t *testing.T) {
	for _, f := range schema() {
		without, alone := all(), Params{}
		reflect.ValueOf(&without).Elem().FieldByIndex(f.index).SetZero()
		reflect.ValueOf(&alone).Elem().FieldByIndex(f.index).Set(reflect.ValueOf(all()).FieldByIndex(f.index))
		a, b := Share(all(), noon), Share(without, noon)
		if a == b || a.Same(b) != slices.Contains(passing, f.name) {
			t.Errorf("%s: equal is %v, the same is %v", f.name, a == b, a.Same(b))
		}
		if got := Share(alone, noon); !strings.HasPrefix(string(got), `{"`+f.name+`":`) {
			t.Errorf("%s alone is told as %s", f.name, got)
		}
	}
	if got := Share(Params{Detail: "x", Path: "/x"}, noon); got != "" {
		t.Errorf("what stays here is told: %s", got)
	}
}

func TestWhatIsOutOfBoundsIsNotHeard(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`"192.0.2.1:1",`, maxList+1), ",")
	for _, raw := range []string{
		`[]`, `{"status":99}`, `{"status":"200"}`, `{"age":-1}`, `{"age":1e300}`, `{"timeout":3601}`, `{"seen":-1}`, `{"remote":"x"}`, `{"remote":"[fe80::1%eth0]:1"}`,
		`{"endpoints":[` + many + `]}`, `{"endpoints":["x"]}`, `{"was":["192.0.2.1:1"]}`, `{"mtu":65536}`, `{"lost":-1}`, `{"sent":2147483649}`,
		`{"notBefore":"10000-01-01T00:00:00Z"}`, `{"stamp":"1969-01-01T00:00:00Z"}`, `{"candidates":[{"address":"x"}]}`, `{"peerShut":1}`, `{"names":"x"}`,
	} {
		if shared, err := ParseShared([]byte(raw)); err == nil {
			t.Errorf("%s was taken as %s", raw, shared)
		}
	}
	for raw, want := range map[string]Shared{
		`{}`: "", `null`: "", `{"status":null,"seen":null,"other":[[]]}`: "", `{"seen":0}`: `{"seen":0}`,
		`{"failure":"reboot","version":"x","serverName":"a b","names":["$(x)"],"nat":{"mapping":"x"}}`: `{"serverName":"?","names":["?"],"nat":{"mapping":"unknown"}}`,
		`{"candidates":[{"address":"192.0.2.1:1","source":"x","state":"x","reason":"x","relay":"x"}]}`: `{"candidates":[{"address":"192.0.2.1:1"}]}`,
	} {
		if shared, err := ParseShared([]byte(raw)); err != nil || shared != want {
			t.Errorf("%s was taken as %s (%v), want %s", raw, shared, err, want)
		}
	}
}

// FuzzHear: accepted input is accepted again unchanged, and yields parameters that would be shared
// in the same way.
func FuzzHear(f *testing.F) {
	f.Add([]byte(Share(all(), noon)))
	f.Add([]byte(`{"names":["$(x)","a"],"seen":1e-9,"age":0.1,"candidates":[{}],"NAMES":["b"],"names":["c"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		shared, err := ParseShared(raw)
		if err != nil {
			return
		}
		again, err := ParseShared([]byte(shared))
		if err != nil && shared != "" || again != shared {
			t.Fatalf("%s is taken as %s (%v)", shared, again, err)
		}
		p := shared.Params(noon)
		clean := p
		if clean.clean(); !reflect.DeepEqual(clean, p) && p.Key == "" {
			t.Errorf("%s has a text that is not fit to be shown", shared)
		}
		if len(shared) > 16<<10 {
			t.Errorf("%d bytes", len(shared))
		}
	})
}
