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

// block is a PEM block of a type with n bytes in it.
func block(kind string, n int) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: make([]byte, n)}))
}

// helloWith is a hello whose API server has this CA.
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

// Other versions leave the number of a start out, or say more beside it.
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
		if len(h.Offers) > maxOffers || len(h.Ports) > len(h.Offers) {
			t.Errorf("%d offers and %d ports", len(h.Offers), len(h.Ports))
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
