package check

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

const outsideURL = "https://api.example.net:6443"

// inBand and outOfBand return results of the API server's checks; no code is a success.
func inBand(o api.Outcome, c catalogue.Code) verdict.Finding {
	return made(begin(api.ServiceAPIServer, api.ServiceAPIServer, facts()), o, c, catalogue.Params{Address: "[fd12::1]:6443", Timeout: Timeout, Path: livePath, Status: 500})
}

func outOfBand(o api.Outcome, c catalogue.Code, how catalogue.Failure) verdict.Finding {
	r, p := beginDirect(NameAPIServerDirect, api.ServiceAPIServer, facts())
	p.Address, p.Failure, p.Path, p.Status = outsideURL, how, livePath, 500
	return made(r, o, c, p)
}

func made(r *recorder, o api.Outcome, c catalogue.Code, p catalogue.Params) verdict.Finding {
	r.Address = p.Address
	if o == api.OK {
		return r.ok(time.Millisecond)
	}
	return r.found(o, StageTCP, c, p)
}

// sideBySide returns the combined findings of two ways to a service.
func sideBySide(inside, outside, gateway verdict.Finding) (in, out verdict.Finding) {
	all := together([]verdict.Finding{gateway, inside}, []verdict.Finding{outside})
	again, _ := verdict.Correlate(time.Now(), nil, all, nil)
	for i, f := range again {
		if !reflect.DeepEqual(f.Verdict(), all[i].Verdict()) {
			panic(fmt.Sprintf("it changes when it is correlated again: %+v", f))
		}
	}
	return all[1], all[2]
}

// dependsOn returns the name of a finding's root.
func dependsOn(f verdict.Finding) string {
	if f.Because == nil {
		return ""
	}
	return f.Because.Ref()
}

func TestTwoWaysTellMoreThanOne(t *testing.T) {
	well := begin(api.ServiceGateway, api.ServiceGateway, facts()).ok(time.Millisecond)
	down := begin(api.ServiceGateway, api.ServiceGateway, facts()).fail(api.Error, StageHandshake, catalogue.HandshakeStale, catalogue.Params{Age: time.Minute})
	waits := dependent(api.ServiceAPIServer, api.ServiceAPIServer, facts(), down)
	for _, c := range []struct {
		name             string
		inside, outside  verdict.Finding
		gateway          verdict.Finding
		in, out          api.Outcome
		inSays, outSays  string
		dependsOn        string
		remainingCode    catalogue.Code
		remainingOutside catalogue.Code
	}{
		{"both work", inBand(api.OK, ""), outOfBand(api.OK, "", ""), well, api.OK, api.OK, "", "", "", "", ""},
		{"a firewall outside", inBand(api.OK, ""), outOfBand(api.Error, catalogue.APIServerURLUnreachable, catalogue.FailureTimeout), well, api.OK, api.Warning,
			"", "inside the tunnel it works: the fault is a firewall, NAT or name outside", "", "", catalogue.APIServerURLUnreachable},
		{"a proxy outside", inBand(api.OK, ""), outOfBand(api.Error, catalogue.TLSWrongName, ""), well, api.OK, api.Warning,
			"", "inside the tunnel it works: what answers outside is another server, or a proxy in front of it", "", "", catalogue.TLSWrongName},
		{"the peer's gateway cannot reach it", inBand(api.Error, catalogue.APIServerRefused), outOfBand(api.OK, "", ""), well, api.Error, api.OK,
			"outside the tunnel it works (" + outsideURL + "): the server works, and the fault is in the tunnel or in the gateway of cloud", "", "", catalogue.APIServerRefused, ""},
		{"the peer announces a wrong authority", inBand(api.Error, catalogue.TLSUnknownCA), outOfBand(api.OK, "", ""), well, api.Error, api.OK,
			"what cloud announces about it is wrong", "", "", catalogue.TLSUnknownCA, ""},
		{"the server is down", inBand(api.Error, catalogue.APIServerRefused), outOfBand(api.Error, catalogue.APIServerURLUnreachable, catalogue.FailureRefused), well, api.Error, api.Unknown,
			"outside the tunnel it fails too (" + outsideURL + "): the fault is the server's", "not known while apiServer fails (PST0301)", api.ServiceAPIServer, catalogue.APIServerRefused, ""},
		{"the server is ill", inBand(api.Error, catalogue.APIServerHTTP), outOfBand(api.Error, catalogue.APIServerHTTP, ""), well, api.Error, api.Unknown,
			"fails too", "not known while apiServer fails (PST0304)", api.ServiceAPIServer, catalogue.APIServerHTTP, ""},
		{"the identity has no rights", inBand(api.Warning, catalogue.APIServerForbidden), outOfBand(api.Warning, catalogue.APIServerForbidden, ""), well, api.Warning, api.Unknown,
			"fails too", "not known while apiServer fails (PST0306)", api.ServiceAPIServer, catalogue.APIServerForbidden, ""},
		{"two faults", inBand(api.Error, catalogue.TLSUnknownCA), outOfBand(api.Error, catalogue.APIServerURLUnreachable, catalogue.FailureName), well, api.Error, api.Error,
			"", "", "", catalogue.TLSUnknownCA, catalogue.APIServerURLUnreachable},
		{"a dead server and a wrong name", inBand(api.Error, catalogue.APIServerRefused), outOfBand(api.Error, catalogue.APIServerURLUnreachable, catalogue.FailureName), well, api.Error, api.Error,
			"", "does not resolve here", "", catalogue.APIServerRefused, catalogue.APIServerURLUnreachable},
		{"the gateway is down", waits, outOfBand(api.OK, "", ""), down, api.Unknown, api.OK,
			"not known while gateway fails (PST0102); outside the tunnel it works (" + outsideURL + ")", "", "", "", ""},
		{"the site is gone", waits, outOfBand(api.Error, catalogue.APIServerURLUnreachable, catalogue.FailureTimeout), down, api.Unknown, api.Unknown,
			"", "not known while gateway fails (PST0102)", api.ServiceGateway, "", ""},
		{"the gateway is down, and the server too", waits, outOfBand(api.Error, catalogue.APIServerURLUnreachable, catalogue.FailureRefused), down, api.Unknown, api.Error,
			"", "nothing listens at " + outsideURL, "", "", catalogue.APIServerURLUnreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, out := sideBySide(c.inside, c.outside, c.gateway)
			for _, x := range []struct {
				what string
				got  verdict.Finding
				want api.Outcome
				says string
				code catalogue.Code
			}{{"inside", in, c.in, c.inSays, c.remainingCode}, {"outside", out, c.out, c.outSays, c.remainingOutside}} {
				v := x.got.Verdict()
				if v.Verdict != x.want || v.Code != string(x.code) || !strings.Contains(v.Cause, x.says) {
					t.Errorf("%s: got %s %s: %s; want %s %s with %q", x.what, v.Verdict, v.Code, v.Cause, x.want, x.code, x.says)
				}
			}
			if dependsOn(out) != c.dependsOn {
				t.Errorf("outside depends on %q, want %q", dependsOn(out), c.dependsOn)
			}
		})
	}
}

// Both ways lack an identity that auth does not issue; the fault is auth's.
func TestAMissingIdentityIsMissedOutsideTooWhileAuthFails(t *testing.T) {
	auth := begin(api.ServiceAuth, api.ServiceAuth, facts()).fail(api.Error, StageTCP, catalogue.AuthRefused, catalogue.Params{Address: "[fd12::1]:80"})
	waits := dependent(api.ServiceAPIServer, api.ServiceAPIServer, facts(), auth)
	got := together([]verdict.Finding{auth, waits}, []verdict.Finding{outOfBand(api.Error, catalogue.IdentityMissing, "")})
	var names []string
	for _, r := range got {
		names = append(names, r.Name+" "+string(r.Outcome))
	}
	if g, want := strings.Join(names, ", "), "auth error, apiServer unknown, apiServer-direct unknown"; g != want {
		t.Errorf("got %s, want %s", g, want)
	}
	if dependsOn(got[2]) != api.ServiceAuth || !strings.Contains(got[2].Verdict().Cause, string(catalogue.AuthRefused)) {
		t.Errorf("it depends on %q: %s", dependsOn(got[2]), got[2].Verdict().Cause)
	}
}

// No other failure outside depends on auth.
func TestAnotherFaultOutsideStandsWhileAuthFails(t *testing.T) {
	auth := begin(api.ServiceAuth, api.ServiceAuth, facts()).fail(api.Error, StageTCP, catalogue.AuthRefused, catalogue.Params{Address: "[fd12::1]:80"})
	waits := dependent(api.ServiceAPIServer, api.ServiceAPIServer, facts(), auth)
	for _, c := range []catalogue.Code{catalogue.TLSWrongName, catalogue.APIServerForbidden, catalogue.APIServerURLUnreachable} {
		got := together([]verdict.Finding{auth, waits}, []verdict.Finding{outOfBand(api.Error, c, "")})
		if out := got[2]; out.Because != nil || out.Fault() != c {
			t.Errorf("%s depends on %q", c, dependsOn(out))
		}
	}
}

func TestARoundShowsBothWaysAndTheTunnelsVerdictsStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.opts.Network = Network{Dial: func(context.Context, netip.AddrPort) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}}
		f.set(func(x *Facts) { x.Direct.APIServerURL = "https://192.0.2.7:6443" })
		f.SetPeers([]string{"cloud"})
		f.want(t, "with a URL that refuses", "ok ok ok")
		rep, err := f.Check(t.Context(), "cloud")
		if err != nil {
			t.Fatal(err)
		}
		got := rep.Findings[len(rep.Findings)-1]
		checkDirect(t, got, NameAPIServerDirect, api.Warning, catalogue.APIServerURLUnreachable, StageTCP)
		f.overlay.pings(nil)
		if rep, err = f.Check(t.Context(), "cloud"); err != nil {
			t.Fatal(err)
		}
		f.want(t, "with the gateway down too", "error unknown unknown")
		got = rep.Findings[len(rep.Findings)-1]
		checkDirect(t, got, NameAPIServerDirect, api.Error, catalogue.APIServerURLUnreachable, StageTCP)
	})
}

// What the user of a service found by both ways also reads right at the service's owner, even if
// the report has no room for the URL.
func TestWhatTwoWaysTellIsReadAtTheOwnersToo(t *testing.T) {
	p := catalogue.Params{Peer: "cloud", Inbound: true, Address: "[fd12::1]:6443", Timeout: Timeout}
	p.Beside = catalogue.BesideWorks
	cause, _ := catalogue.Render(catalogue.APIServerTimeout, p)
	if want := "outside the tunnel it works: the server works, and the fault is in the tunnel or in this gateway"; !strings.HasSuffix(cause, want) {
		t.Errorf("got %q, want %q at its end", cause, want)
	}
	cause, _ = catalogue.Render(catalogue.TLSUnknownCA, p)
	if want := "what this gateway announces about it is wrong"; !strings.HasSuffix(cause, want) {
		t.Errorf("got %q, want %q at its end", cause, want)
	}
}

// If the way outside is the one in use, it is the one that fails.
func TestTheWayThatIsUsedIsTheOneThatFails(t *testing.T) {
	used := func(r verdict.Finding) verdict.Finding { r.Used = true; return r }
	well := begin(api.ServiceGateway, api.ServiceGateway, facts()).ok(time.Millisecond)
	for _, c := range []struct {
		name            string
		inside, outside verdict.Finding
		in, out         api.Outcome
	}{
		{"both work", inBand(api.OK, ""), outOfBand(api.OK, "", ""), api.OK, api.OK},
		{"a firewall outside", inBand(api.OK, ""), outOfBand(api.Error, catalogue.APIServerURLUnreachable, catalogue.FailureTimeout), api.OK, api.Error},
		{"the tunnel's way is worse", inBand(api.Error, catalogue.APIServerRefused), outOfBand(api.OK, "", ""), api.Warning, api.OK},
		{"the server is down", inBand(api.Error, catalogue.APIServerRefused), outOfBand(api.Error, catalogue.APIServerURLUnreachable, catalogue.FailureRefused), api.Unknown, api.Error},
	} {
		in, out := sideBySide(c.inside, used(c.outside), well)
		if in.Outcome != c.in || out.Outcome != c.out {
			t.Errorf("%s: inside %s (%s), outside %s (%s); want %s and %s", c.name, in.Outcome, in.Verdict().Cause, out.Outcome, out.Verdict().Cause, c.in, c.out)
		}
	}
	f := facts()
	f.Direct.Used = true
	r, p := beginDirect(NameAPIServerDirect, api.ServiceAPIServer, f)
	if !r.found(api.Error, StageTCP, catalogue.APIServerURLUnreachable, p).Used {
		t.Error("a result does not know that its way is used")
	}
}
