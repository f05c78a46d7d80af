package predict

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

func TestReadTakesBothForms(t *testing.T) {
	one := "clusters:\n- name: a\n  gateway: {exposure: LoadBalancer, addresses: [\"203.0.113.1:1\"]}\n- name: b\n"
	a, b, err := Read("f", []byte(one))
	if err != nil || a.Name != "a" || b.Name != "b" || a.Gateway.Exposure != LoadBalancer {
		t.Errorf("clusters: got %+v, %+v, %v", a, b, err)
	}
	a, b, err = Read("f", []byte("name: a\n---\nname: b\nlan: x\n"))
	if err != nil || a.Name != "a" || b.LAN != "x" {
		t.Errorf("two documents: got %+v, %+v, %v", a, b, err)
	}
}

func TestReadIsStrict(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"an unknown field", "name: a\ngatway: {}\n", []string{"f.yaml", "line 2", "gatway"}},
		{"one deeper", "name: a\ngateway:\n  exposure: NodePort\n  nat: {maping: none}\n", []string{"line 4", "maping"}},
		{"in the list", "clusters:\n- name: a\n  lann: x\n- name: b\n", []string{"line 3", "lann"}},
		{"another type", "name: a\nrelay: [1]\n", []string{"line 2"}},
		{"one cluster", "name: a\n", []string{"1 clusters", "two"}},
		{"three", "name: a\n---\nname: b\n---\nname: c\n", []string{"3 clusters"}},
		{"the same twice", "name: a\n---\nname: a\n", []string{"both clusters are called a"}},
		{"no name", "lan: x\n---\nname: b\n", []string{"cluster 1: name"}},
		{"a word that is none", "name: a\n---\nname: b\ngateway: {exposure: Loadbalancer}\n", []string{"cluster 2: gateway.exposure", "LoadBalancer"}},
		{"an address that is none", "name: a\n---\nname: b\nauth: {exposure: NodePort, address: \"a b\"}\n", []string{"cluster 2: auth.address"}},
		{"an address with a zone", "name: a\n---\nname: b\ngateway: {addresses: [\"[fe80::1%rm -rf]:1\"]}\n", []string{"gateway.addresses"}},
		{"a port that is none", "name: a\n---\nname: b\nauth: {address: \"h:`x`\"}\n", []string{"auth.address"}},
		{"no YAML", "name: [\n", []string{"f.yaml"}},
		{"nothing", "", []string{"0 clusters"}},
		{"another JSON", `{"kind":"Lab"}`, []string{"document 1", "Lab"}},
		{"too much", strings.Repeat("#", maxFile+1), []string{"bytes"}},
	} {
		_, _, err := Read("f.yaml", []byte(c.file))
		if err == nil {
			t.Errorf("%s: taken", c.name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", c.name, err, w)
			}
		}
		if strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: the error is more than a line: %q", c.name, err)
		}
	}
}

func TestWhatGatewaysShowIsEnoughToPredictInBand(t *testing.T) {
	file := `{"kind":"Status","gateway":{"name":"edge","nat":{"mapping":"endpoint-independent","filtering":"address-and-port-dependent"},
		"candidates":[{"address":"192.168.1.5:51820","source":"host"},{"address":"198.51.100.9:51820","source":"stun"}]}}
		{"kind":"Status","gateway":{"name":"cloud","nat":{"mapping":"unknown"},"candidates":[{"address":"10.0.0.7:51820","source":"host"},{"address":"203.0.113.2:51820","source":"service"}]}}`
	a, b, err := Read("both.json", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	p := Predict(a, b)
	if m := p.Mode(api.ModeInBand); m.Answer != Works || m.Path != (Path{PathDirect, "edge", "203.0.113.2:51820"}) {
		t.Errorf("got %+v", m)
	}
	if m := p.Mode(api.ModeOutOfBand); m.Answer != Conditional {
		t.Errorf("unknown auth and API server: got %+v", m)
	}
}

func TestNetChecksSayWhetherARelayIsNeeded(t *testing.T) {
	symmetric := `{"kind":"NetCheck","mapping":"endpoint-dependent","filtering":"unknown","turnServers":[]}`
	relay := `{"kind":"NetCheck","mapping":"endpoint-dependent","turnServers":[{"address":"turn:3478","relayed":"203.0.113.3:5"}]}`
	for _, c := range []struct {
		name, file string
		want       Answer
		path       string
	}{{"none", symmetric + symmetric, Fails, PathNone}, {"one", symmetric + relay, Works, PathRelay}} {
		a, b, err := Read("f", []byte(c.file))
		if err != nil {
			t.Fatal(err)
		}
		if m := Predict(a, b).Mode(api.ModeInBand); m.Answer != c.want || m.Path.Kind != c.path {
			t.Errorf("%s: got %+v", c.name, m)
		}
	}
}

func TestATicketsCandidatesAreJudged(t *testing.T) {
	joiner := Exposure{Name: "edge", Gateway: Gateway{NAT: NAT{Mapping: "endpoint-dependent"}}}
	for _, c := range []struct {
		name       string
		candidates []api.Candidate
		want       Answer
		path       string
	}{
		{"a public host", []api.Candidate{{Address: "203.0.113.2:51820", Source: api.SourceHost}}, Conditional, PathDirect},
		{"an advertised address", []api.Candidate{{Address: "10.0.0.1:51820", Source: api.SourceHost}, {Address: "203.0.113.2:51820", Source: api.SourceAdvertised}}, Works, PathDirect},
		{"a relay", []api.Candidate{{Address: "203.0.113.3:50000", Source: api.SourceRelay}}, Works, PathRelay},
		{"only private addresses", []api.Candidate{{Address: "10.0.0.1:51820", Source: api.SourceHost}}, Conditional, PathNone},
	} {
		m := Predict(FromCandidates("cloud", c.candidates), joiner).Mode(api.ModeInBand)
		if m.Answer != c.want || m.Path.Kind != c.path {
			t.Errorf("%s: got %+v", c.name, m)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range scenarios() {
		f.Add(c.a + "---\n" + c.b)
	}
	f.Fuzz(func(t *testing.T, file string) {
		a, b, err := Read("f", []byte(file))
		if err != nil {
			return
		}
		wellFormed(t, file, Predict(a, b))
	})
}

// Read is ReadClusters and Pair.
func Read(name string, data []byte) (a, b Exposure, err error) {
	found, err := ReadClusters(name, data)
	if err != nil {
		return a, b, err
	}
	return Pair(name, found)
}
