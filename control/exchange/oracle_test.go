package exchange

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/report"
	"github.com/postern-dev/postern/control/verdict"
)

// A peer that announces addresses of our network must not learn from our report which of
// them have an open port: what ICMP says of them is for the operator here.
func TestAReportDoesNotTellWhatListensInOurNetwork(t *testing.T) {
	now := time.Now()
	for _, source := range []string{api.SourceAdvertised, api.SourceService, api.SourcePortmap, api.SourceLAN, api.SourceDNS, api.SourceHost} {
		for _, announced := range []string{"192.168.7.9:161", "10.0.0.5:53", "172.16.1.1:69", "100.64.0.9:500", "[fd12:3456::9]:161", "169.254.1.1:53",
			"192.0.0.8:161", "198.18.0.5:161", "[fec0::5]:161", "[64:ff9b::a00:5]:161", "[64:ff9b:1::a00:5]:161", "[2002:a00:5::1]:161",
			"[2001:0:a00:5::1]:161", "[::ffff:0:a00:5]:161"} {
			said := func(refusals ...check.Refusal) (verdict.Finding, report.Report) {
				f := check.Facts{Name: "cloud", Address: netip.MustParseAddr("fd00::1"), Since: now.Add(-time.Minute), NoPath: "nothing answers",
					Candidates: []catalogue.Candidate{{Address: announced, Source: source, State: "failed"}}, Endpoints: []string{announced},
					Evidence: check.Evidence{Unreachable: refusals}}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				r := check.Gateway(ctx, func(context.Context, netip.Addr, int) (time.Duration, error) { return 0, errors.New("no answer") }, f)
				return r, report.Report{Gateway: "edge", At: now, Verdicts: report.Tell([]verdict.Finding{r}, now)}
			}
			_, silent := said()
			closed, refused := said(check.Refusal{To: announced, Reason: "port unreachable", At: now})
			if !silent.Same(refused) {
				t.Errorf("%s (%s): a closed port is reported as %+v, an open one as %+v", announced, source, refused.Verdicts, silent.Verdicts)
			}
			if source != api.SourceHost && closed.Code != catalogue.NothingListens {
				t.Errorf("%s (%s): the operator is shown %s, want %s", announced, source, closed.Code, catalogue.NothingListens)
			}
		}
	}
}

// What is not in our network, the peer may hear: it is its own address.
func TestAReportTellsThatAPublicAddressIsWrong(t *testing.T) {
	now, address := time.Now(), "9.9.9.9:51820"
	f := check.Facts{Name: "cloud", Address: netip.MustParseAddr("fd00::1"), Since: now.Add(-time.Minute), NoPath: "nothing answers",
		Candidates: []catalogue.Candidate{{Address: address, Source: api.SourceAdvertised}},
		Evidence:   check.Evidence{Unreachable: []check.Refusal{{To: address, Reason: "port unreachable", At: now}}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := check.Gateway(ctx, func(context.Context, netip.Addr, int) (time.Duration, error) { return 0, errors.New("no answer") }, f)
	if v := report.Tell([]verdict.Finding{r}, now); len(v) != 1 || v[0].Code != catalogue.NothingListens || v[0].Params.Params(now).Address != address {
		t.Errorf("got %+v", v)
	}
}
