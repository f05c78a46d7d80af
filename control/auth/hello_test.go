package auth

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/control/api"
)

// block returns a PEM block of a type with n bytes of data.
func block(kind string, n int) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: make([]byte, n)}))
}

// helloWith returns a hello whose API server has this CA.
func helloWith(ca string) []byte {
	b, err := json.Marshal(Hello{Version: "1.0", Name: "cloud", APIServer: &APIServer{CAData: ca}})
	if err != nil {
		panic(err)
	}
	return b
}

func TestAHelloIsSafeToShow(t *testing.T) {
	h, err := ParseHello([]byte(`{"version":"1.7\u001b","software":"po\u001b[2Jstern\u202e","name":"cloud","capabilities":["re\ndeem"],
		"offers":["auth","auth","Bad Name","\u001b]0;x","registry","apiServer"],
		"ports":{"registry":5000,"Bad Name":1,"other":7},"apiServer":{"serverName":"k8s\u0007"},"somethingNew":1}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Hello{
		Version: "1.7", Name: "cloud", Capabilities: []string{"re\ufffddeem"},
		Offers: []string{"auth", "registry", "apiServer"}, Ports: map[string]uint16{"registry": 5000},
		APIServer: &APIServer{},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if h, err = ParseHello([]byte(`{"version":"1.0","name":"cloud"}`)); err != nil || h.Offers == nil {
		t.Errorf("no offers must be none, not unknown: %+v, %v", h, err)
	}
}

// Older gateways know one TCP port for each service, and must not take UDP ports for TCP. Newer
// ones may write an unknown format.
func TestPortsThatOlderGatewaysDoNotKnow(t *testing.T) {
	told := Hello{Version: "1.0", Name: "cloud", Offers: []string{"web", "dns", "media", "ftp"}}
	want := map[string]string{"web": "8080", "dns": "53/UDP", "media": "5000-5010/UDP", "ftp": "2000-2100"}
	for service, text := range want {
		p, err := api.ParsePorts(text)
		if err != nil {
			t.Fatal(err)
		}
		told.SetPorts(service, p)
	}
	if diff := cmp.Diff(map[string]uint16{"web": 8080, "ftp": 2000}, told.Ports); diff != "" {
		t.Errorf("older gateways read (-want +got):\n%s", diff)
	}
	body, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	h, err := ParseHello(body)
	if err != nil {
		t.Fatal(err)
	}
	for service, text := range want {
		if p, ok := h.PortsOf(service); !ok || p.String() != text {
			t.Errorf("%s is at %v (%v), want %s", service, p, ok, text)
		}
	}
	h, err = ParseHello([]byte(`{"version":"1.9","name":"cloud","offers":["a","b","c","d"],"ports":{"a":1},
		"ranges":{"a":"1/SCTP","b":"0","c":"9-1","d":"7/UDP","e":"8/UDP"}}`))
	if err != nil || len(h.Ranges) != 1 || len(h.Ports) != 0 {
		t.Errorf("of ports that make no sense here are kept %v and %v, %v", h.Ranges, h.Ports, err)
	}
}

func TestOfCADataTheCertificatesStay(t *testing.T) {
	one, two := block("CERTIFICATE", 40), block("CERTIFICATE", 50)
	for name, ca := range map[string]string{
		"certificates":       one + two,
		"with text between":  "# one\n" + one + "\x1b[2J\n" + two + "trailing",
		"with a private key": one + block("PRIVATE KEY", 30) + two,
		"with headers":       strings.Replace(one, "CERTIFICATE-----\n", "CERTIFICATE-----\nNote: x\n\n", 1) + two,
	} {
		h, err := ParseHello(helloWith(ca))
		if err != nil || h.APIServer.CAData != one+two {
			t.Errorf("%s: got %v and\n%s", name, err, h.APIServer.CAData)
		}
	}
}

func TestHellosThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       error
		tells      string
	}{
		{"no JSON", "[]", ErrAnswer, ""},
		{"no version", `{"name":"cloud"}`, ErrAnswer, "version"},
		{"another major version", `{"version":"2.0","name":"cloud"}`, ErrIncompatible, "2.0"},
		{"no name", `{"version":"1.0"}`, ErrAnswer, "name"},
		{"a name that is none", `{"version":"1.0","name":"a\nb"}`, ErrAnswer, "name"},
		{"a key for a CA", string(helloWith(block("PRIVATE KEY", 30))), ErrAnswer, "no PEM certificate"},
		{"too many certificates", string(helloWith(strings.Repeat(block("CERTIFICATE", 1000), 30))), ErrAnswer, "at most 32768"},
	} {
		if h, err := ParseHello([]byte(c.body)); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.tells) || h.Name != "" {
			t.Errorf("%s: got %+v and %v, want %v that says %q", c.name, h, err, c.want, c.tells)
		}
	}
}

// Other versions may omit the start number or have additional fields.
func TestAHelloTellsOfAStart(t *testing.T) {
	for _, c := range []struct {
		name, number string
		want         uint64
		err          error
	}{
		{"none", ``, 0, nil},
		{"one", `,"heardBoot":1795272356`, 1795272356, nil},
		{"the highest", `,"heardBoot":18446744073709551615`, math.MaxUint64, nil},
		{"something new beside it", `,"heardBoot":7,"heardBootAt":"2026-03-02"`, 7, nil},
		{"null", `,"heardBoot":null`, 0, nil},
		{"too high", `,"heardBoot":18446744073709551616`, 0, ErrAnswer},
		{"negative", `,"heardBoot":-1`, 0, ErrAnswer},
		{"a fraction", `,"heardBoot":1.5`, 0, ErrAnswer},
		{"a huge number", `,"heardBoot":1e400`, 0, ErrAnswer},
		{"a text", `,"heardBoot":"7"`, 0, ErrAnswer},
	} {
		h, err := ParseHello([]byte(`{"version":"1.0","name":"cloud"` + c.number + `}`))
		if !errors.Is(err, c.err) || h.HeardBoot != c.want {
			t.Errorf("%s: got %d and %v, want %d and %v", c.name, h.HeardBoot, err, c.want, c.err)
		}
	}
	body, err := json.Marshal(Hello{Version: "1.0", Name: "cloud"})
	if err != nil || strings.Contains(string(body), "heardBoot") {
		t.Errorf("nothing heard is written as %s (%v)", body, err)
	}
}

func FuzzParseHello(f *testing.F) {
	f.Add([]byte(`{"version":"1.0","name":"cloud","offers":["auth","apiServer","registry"],"ports":{"registry":5000}}`))
	f.Add([]byte(`{"version":"1.0","name":"cloud","offers":["dns","media"],"ports":{"media":1},"ranges":{"dns":"53/UDP","media":"1-9"}}`))
	f.Add([]byte(`{"version":"2"}`))
	f.Add([]byte(`{"version":"1.x.\u202e","name":"a"}`))
	f.Add([]byte(`{"version":"1.0","name":"a","offers":null,"software":"\u001b[2J"}`))
	f.Add(helloWith(block("CERTIFICATE", 9) + block("PRIVATE KEY", 9)))
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := ParseHello(body)
		if err != nil {
			return
		}
		if !strings.HasPrefix(strings.TrimLeft(h.Version, "0+"), "1") {
			t.Errorf("version %q was accepted", h.Version)
		}
		if len(h.Offers) > maxOffers || len(h.Ports) > len(h.Offers) || len(h.Ranges) > len(h.Offers) {
			t.Errorf("%d offers, %d ports and %d ranges", len(h.Offers), len(h.Ports), len(h.Ranges))
		}
		for s := range h.Ranges {
			if p, ok := h.PortsOf(s); !ok || p.Len() < 1 || p.Len() > api.MaxPorts || p.String() != h.Ranges[s] {
				t.Errorf("the ports %q are kept", h.Ranges[s])
			}
		}
		shown := slices.Concat([]string{h.Version, h.Software, h.Name}, h.Offers, h.Capabilities)
		if h.APIServer != nil {
			shown = append(shown, h.APIServer.ServerName)
			if ca := h.APIServer.CAData; len(ca) > 2*api.MaxCAData || ca != string(onlyCertificates([]byte(ca))) {
				t.Errorf("caData of %d bytes that are not all certificates", len(ca))
			}
		}
		for _, s := range shown {
			if s != clean(s, len(s)+1) {
				t.Errorf("%q is not safe to show", s)
			}
		}
	})
}
