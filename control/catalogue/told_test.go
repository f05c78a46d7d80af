package catalogue

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// all has a value that may be told for every parameter that may.
func all() Params {
	p := full()
	p.Remote, p.Issuer, p.Failure, p.Beside, p.BesideAddress = "192.0.2.1:6443", "k3s-server-ca@1690000000", FailureTimeout, BesideWorks, "[fd00::1]:6443"
	p.Took, p.Way, p.Token, p.PeerShut = time.Second, time.Millisecond, true, true
	p.Seen = noon.Add(-3 * time.Second)
	p.Candidates[0].Reason = ""
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
	told := Tell(all(), noon)
	heard, err := Hear([]byte(told))
	if err != nil || heard != told {
		t.Fatalf("%s is heard as %s (%v)", told, heard, err)
	}
	if got := heard.Params(noon); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := heard.Params(noon.Add(time.Hour)).Seen; !got.Equal(noon.Add(time.Hour - 3*time.Second)) {
		t.Errorf("what was seen 3 s before the report was seen at %s", got)
	}
}

// Each parameter makes what is told another, and alone it is told as well.
func TestEveryToldParameterCounts(t *testing.T) {
	for _, f := range schema() {
		without, alone := all(), Params{}
		reflect.ValueOf(&without).Elem().FieldByIndex(f.index).SetZero()
		reflect.ValueOf(&alone).Elem().FieldByIndex(f.index).Set(reflect.ValueOf(all()).FieldByIndex(f.index))
		a, b := Tell(all(), noon), Tell(without, noon)
		if a == b || a.Same(b) != (f.name == "age") {
			t.Errorf("%s: equal is %v, the same is %v", f.name, a == b, a.Same(b))
		}
		if got := Tell(alone, noon); !strings.HasPrefix(string(got), `{"`+f.name+`":`) {
			t.Errorf("%s alone is told as %s", f.name, got)
		}
	}
	if got := Tell(Params{Detail: "x", Path: "/x"}, noon); got != "" {
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
		if told, err := Hear([]byte(raw)); err == nil {
			t.Errorf("%s was taken as %s", raw, told)
		}
	}
	for raw, want := range map[string]Told{
		`{}`: "", `null`: "", `{"status":null,"seen":null,"other":[[]]}`: "", `{"seen":0}`: `{"seen":0}`,
		`{"failure":"reboot","version":"x","serverName":"a b","names":["$(x)"],"nat":{"mapping":"x"}}`: `{"serverName":"?","names":["?"],"nat":{"mapping":"unknown"}}`,
		`{"candidates":[{"address":"192.0.2.1:1","source":"x","state":"x","reason":"x","relay":"x"}]}`: `{"candidates":[{"address":"192.0.2.1:1"}]}`,
	} {
		if told, err := Hear([]byte(raw)); err != nil || told != want {
			t.Errorf("%s was taken as %s (%v), want %s", raw, told, err, want)
		}
	}
}

// FuzzHear: whatever is taken is taken again as it is, and makes parameters that would be told
// in the same way.
func FuzzHear(f *testing.F) {
	f.Add([]byte(Tell(all(), noon)))
	f.Add([]byte(`{"names":["$(x)","a"],"seen":1e-9,"age":0.1,"candidates":[{}],"NAMES":["b"],"names":["c"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		told, err := Hear(raw)
		if err != nil {
			return
		}
		again, err := Hear([]byte(told))
		if err != nil && told != "" || again != told {
			t.Fatalf("%s is taken as %s (%v)", told, again, err)
		}
		p := told.Params(noon)
		clean := p
		if clean.clean(); !reflect.DeepEqual(clean, p) && p.Key == "" {
			t.Errorf("%s has a text that is not fit to be shown", told)
		}
		if len(told) > 16<<10 {
			t.Errorf("%d bytes", len(told))
		}
	})
}
