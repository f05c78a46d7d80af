package report

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// claims are values chosen by a peer, none of which is one of the reader's.
const claims = `{"address":"evil.example:4443","besideAddress":"evil.example:4444","remote":"192.0.2.66:4666",
	"endpoints":["192.0.2.66:4999"],"serverName":"evil-name.example","names":["evil.example:4022","evil"],"issuer":"evil-ca","authorities":["evil-root"],
	"from":"192.0.2.66:4077","seen":3,"own":["192.0.2.66:4022"],"port":4022,"direct":true,
	"candidates":[{"address":"192.0.2.66:4023","source":"advertised","state":"failed"}],"was":["192.0.2.66"],"now":["192.0.2.66"],
	"sent":200,"lost":9,"mtu":65000,"linkMtu":65001,"size":65002,"relay":"evil.example:4024","age":33,"timeout":5,"version":"66.4","ownVersion":"66.5",
	"nat":{"mapping":"endpoint-dependent"},"peerNat":{"mapping":"address-dependent"},"failure":"timeout","beside":"works","status":403}`

// claimed returns the verdict that a reader makes of a code with those values.
func claimed(t *testing.T, reader Reader, target, outcome string, c catalogue.Code) api.Verdict {
	t.Helper()
	r, err := Parse(fmt.Appendf(nil, `{"version":"1.0","at":"2026-03-02T12:00:00Z","gateway":"evil","verdicts":[{"target":%q,"outcome":%q,"code":%q,"age":1,"params":%s}]}`,
		target, outcome, c, claims))
	if err != nil {
		t.Fatal(err)
	}
	got := r.Targets(reader, noon, noon)
	return map[string]api.Verdict{api.ServiceGateway: got.Gateway, api.ServiceAuth: got.Auth, api.ServiceAPIServer: got.APIServer}[target]
}

// Fixes are pasted into shells and configurations: no value of a report may appear in one.
func TestNoValueOfAReportIsInAFix(t *testing.T) {
	theirs := regexp.MustCompile(`evil[-.]|192\.0\.2\.66|\b40[0-9][0-9]\b|\b4[4-9][0-9][0-9]\b|\b6500[0-9]|\b66\.`)
	for _, e := range catalogue.Codes() {
		for _, target := range targets {
			for name, reader := range map[string]Reader{"one that knows itself": reading(), "one that knows nothing": {Peer: "edge"}} {
				if v := claimed(t, reader, target, "error", e.Code); theirs.MatchString(v.Fix + v.Command) {
					t.Errorf("%s of %s, read by %s: the fix has a value of the report: %s", e.Code, target, name, v.Fix)
				}
			}
		}
	}
}

// Fixes use what the reader knows about itself instead.
func TestFixesAreMadeOfWhatTheReaderKnows(t *testing.T) {
	for c, want := range map[catalogue.Code]string{
		catalogue.PrivateAdvertised: `here set spec.discovery.advertise: ["203.0.113.9:51999"]`,
		catalogue.NothingListens:    "`nft insert rule inet filter input udp dport 51999 accept`",
		catalogue.NotHeardByPeer:    "`nft insert rule inet filter input udp dport 51999 accept`",
		catalogue.PeerMustDial:      "(203.0.113.9:51999, [2001:db8::9]:51999)",
		catalogue.NameMoved:         "an address of this gateway (203.0.113.9:51999",
		catalogue.NoWayIn:           "forward UDP 51999",
		catalogue.RelayInUse:        "forward UDP 51999",
		catalogue.PathMTUSmall:      "spec.mtu: 1500 ",
	} {
		if v := claimed(t, reading(), api.ServiceGateway, "error", c); !strings.Contains(v.Fix, want) {
			t.Errorf("%s: got the fix %q, want %q in it", c, v.Fix, want)
		}
	}
}

// A fix does not advise what the reader has already set: then the peer does not know of it.
func TestNoFixSetsWhatIsSet(t *testing.T) {
	r := reading()
	known := r.Own()
	known.Advertised = []string{"203.0.113.9:51999"}
	r.Own = func() catalogue.Shown { return known }
	v := claimed(t, r, api.ServiceGateway, "error", catalogue.PrivateAdvertised)
	if want := `set spec.peers[].endpoints: ["203.0.113.9:51999"] there`; !strings.Contains(v.Fix, want) || strings.Contains(v.Fix, "set spec.discovery") {
		t.Errorf("got %q, want %q in it", v.Fix, want)
	}
}

// The writer's NAT is the peer's; this gateway knows its own.
func TestEachNATIsThatOfItsGateway(t *testing.T) {
	v := claimed(t, reading(), api.ServiceGateway, "warning", catalogue.RelayInUse)
	if want := "edge is behind a NAT with endpoint-dependent mapping (symmetric), this gateway behind no NAT"; !strings.Contains(v.Cause, want) {
		t.Errorf("got %q, want %q in it", v.Cause, want)
	}
}

// Of the addresses at which a peer tried to reach this gateway, only its own are used, here for
// the port.
func TestOnlyOwnAddressesAreNamedAsSought(t *testing.T) {
	var p catalogue.Params
	p.Candidates = []catalogue.Candidate{{Address: "192.0.2.66:1"}, {Address: "203.0.113.9:51999", State: "failed"}}
	r := Report{Verdicts: []Verdict{{Target: "gateway", Outcome: api.Error, Code: catalogue.PeerSilent, Params: catalogue.Share(p, noon)}}}
	got := r.Targets(reading(), noon, noon).Gateway
	if strings.Contains(got.Cause+got.Fix, "192.0.2.66") {
		t.Errorf("got %q, %q", got.Cause, got.Fix)
	}
	if want := "let UDP 51999 in here (security group: inbound UDP 51999 from anywhere): `nft insert rule inet filter input udp dport 51999 accept`"; !strings.Contains(got.Fix, want) {
		t.Errorf("got the fix %q, want %q in it", got.Fix, want)
	}
}

// What may be reached here is decided here: a report grants nothing, and requests nothing.
func TestAReportAsksForNoRights(t *testing.T) {
	only := func(offers ...string) Reader { return Reader{Peer: "edge", Offers: offers} }
	all := only(api.ServiceAuth, api.ServiceAPIServer)
	for _, c := range []struct {
		name   string
		reader Reader
		target string
		says   string
		code   catalogue.Code
		want   string
	}{
		{"denied what it is not granted", only("db"), api.ServiceAuth, "error", catalogue.AuthDenied, "off PST0206"},
		{"not offered what it is not granted", only("db"), api.ServiceAuth, "error", catalogue.AuthOff, "off PST0206"},
		{"denied what it is granted", all, api.ServiceAuth, "error", catalogue.AuthDenied, "error PST0204"},
		{"an error of what it says is off", all, api.ServiceAuth, "error", catalogue.AuthOff, "off PST0206"},
		{"unauthorized, and not granted", only(api.ServiceAuth), api.ServiceAPIServer, "error", catalogue.APIServerUnauthorized, "off PST0307"},
		{"forbidden, and not granted", only(api.ServiceAuth), api.ServiceAPIServer, "warning", catalogue.APIServerForbidden, "off PST0307"},
		{"forbidden, and granted", all, api.ServiceAPIServer, "warning", catalogue.APIServerForbidden, "warning PST0306"},
		{"off as an error, and not granted", only(api.ServiceAuth), api.ServiceAPIServer, "error", catalogue.APIServerOff, "off PST0307"},
		{"off as an error, and granted", all, api.ServiceAPIServer, "error", catalogue.APIServerOff, "off PST0307"},
		{"without an identity, and without auth", only(api.ServiceAPIServer), api.ServiceAPIServer, "error", catalogue.IdentityMissing, "off PST0307"},
		{"without an identity, and granted", all, api.ServiceAPIServer, "error", catalogue.IdentityMissing, "error PST0505"},
		{"off with the code of a fault", all, api.ServiceAPIServer, "off", catalogue.APIServerTimeout, "unknown PST0302"},
	} {
		v := claimed(t, c.reader, c.target, c.says, c.code)
		if got := summary(v); got != c.want {
			t.Errorf("%s: got %q (%s), want %q", c.name, got, v.Cause, c.want)
		}
		if v.Cause == "" || v.Fix == "" || strings.Contains(v.Fix, "peer allow") || strings.Contains(v.Fix, "clusterrolebinding") {
			t.Errorf("%s: got the fix %q", c.name, v.Fix)
		}
	}
}

// Access outside the tunnel depends on the peer's own settings, and is not reported.
func TestNothingIsToldOfChecksOutsideTheTunnel(t *testing.T) {
	for target, codes := range map[string][]catalogue.Code{
		api.ServiceAuth:      {catalogue.AuthURLUnreachable, catalogue.AuthTokenRejected, catalogue.TLSWrongName, catalogue.TLSUnknownCA},
		api.ServiceAPIServer: {catalogue.APIServerURLUnreachable},
		api.ServiceGateway:   {catalogue.ClockSkew},
	} {
		for _, c := range codes {
			if v := claimed(t, reading(), target, "error", c); v.Verdict != api.Unknown || v.Code != "" {
				t.Errorf("%s of %s was taken: %+v", c, target, v)
			}
		}
	}
}

// The timestamp of a handshake and the dates of a certificate can have any value.
func TestNoTimeKeepsAReportFromBeingWritten(t *testing.T) {
	for _, at := range []time.Time{time.Date(292_277_026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), time.Unix(1<<62, 0)} {
		p := catalogue.Params{NotBefore: at, NotAfter: at}
		p.Stamp, p.Newest = at, at
		r := Report{At: noon, Gateway: "edge", Verdicts: []Verdict{VerdictOf("gateway", api.Verdict{Verdict: api.Error, Code: "PST0111"}, p, noon)}}
		b, err := r.Encode()
		if err != nil {
			t.Errorf("%v: %v", at, err)
			continue
		}
		if _, err := Parse(b); err != nil {
			t.Errorf("%v: the other end refuses it: %v", at, err)
		}
		if !r.Same(r) {
			t.Errorf("%v: a report is not the same as itself", at)
		}
	}
}

func TestASizeOfNoPacketIsRefused(t *testing.T) {
	for _, field := range []string{"mtu", "linkMtu", "size"} {
		body, err := json.Marshal(map[string]any{"version": "1.0", "at": noon, "gateway": "edge", "verdicts": []any{
			map[string]any{"target": "gateway", "outcome": "warning", "params": map[string]int{field: 1 << 16}}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(body); err == nil {
			t.Errorf("a %s of %d bytes was taken", field, 1<<16)
		}
	}
}
