package check

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

func TestPathTellsWhatConnectionsHaveShown(t *testing.T) {
	plain := api.Traffic{Connections: 1, LimitedBy: api.LimitBandwidth, BytesPerSecond: 2.5e6, RTTSeconds: 0.0412, BaseRTTSeconds: 0.02, LossRatio: 0.0012, LossSample: 50000}
	with := func(change func(*api.Traffic)) *api.Traffic {
		c := plain
		change(&c)
		return &c
	}
	for _, c := range []struct {
		name    string
		traffic *api.Traffic
		outcome api.Outcome
		code    catalogue.Code
		cause   string // part of it
		detail  string // likewise
	}{
		{name: "no connection"},
		{name: "nothing sent yet", traffic: with(func(t *api.Traffic) { t.BytesPerSecond = 0 })},
		{name: "long ago", traffic: with(func(t *api.Traffic) { t.IdleSeconds = 301 })},
		{name: "all is well", traffic: &plain, outcome: api.OK, detail: "up to 20 Mbit/s, round trip 41.2ms (20ms without a queue), 0.12% lost and 0.00% in queues, limited by bandwidth"},
		{name: "it loses", traffic: with(func(t *api.Traffic) { t.LossRatio = 0.021 }), outcome: api.Warning, code: catalogue.PacketsLost,
			cause: "2.1 % of the packets to cloud over 198.51.100.7:51820 are lost whatever the rate", detail: "2.10% lost"},
		{name: "of too few packets", traffic: with(func(t *api.Traffic) { t.LossRatio, t.LossSample = 0.021, 999 }), outcome: api.OK},
		{name: "full queues", traffic: with(func(t *api.Traffic) { t.QueueLossRatio = 0.05 }), outcome: api.OK, detail: "5.00% in queues"},
		{name: "a rate limiter", traffic: with(func(t *api.Traffic) { t.PolicedBytesPerSecond = 6.25e6 }), outcome: api.Warning, code: catalogue.RateLimited,
			cause: "a rate limiter between this gateway and cloud over 198.51.100.7:51820 drops what exceeds 50 Mbit/s"},
		{name: "both: the loss is the fault", traffic: with(func(t *api.Traffic) { t.LossRatio, t.PolicedBytesPerSecond = 0.03, 6.25e6 }),
			outcome: api.Warning, code: catalogue.PacketsLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Facts{Name: "cloud", Path: PathFacts{Kind: api.PathDirect, Remote: "198.51.100.7:51820", Traffic: c.traffic}}
			got, known := pathOf(f)
			if known != (c.outcome != "") {
				t.Fatalf("known: %v", known)
			}
			if !known {
				return
			}
			if got.Outcome != c.outcome || got.Code != c.code {
				t.Errorf("got %s %s, want %s %s", got.Outcome, got.Code, c.outcome, c.code)
			}
			if v := got.Verdict(); !strings.Contains(v.Cause, c.cause) || (v.Fix == "") != (c.code == "") {
				t.Errorf("cause %q, fix %q; want %q", v.Cause, v.Fix, c.cause)
			}
			if d := got.Stages[0].Detail; !strings.Contains(d, c.detail) {
				t.Errorf("detail %q, want %q", d, c.detail)
			}
		})
	}
}

// Lost echoes and losses of connections are one fault, and so are drops of our own socket.
func TestLossOfAPathFollowsFromWhatExplainsIt(t *testing.T) {
	f := Facts{Name: "cloud", Path: PathFacts{Traffic: &api.Traffic{BytesPerSecond: 1, LossRatio: 0.05, LossSample: 5000}}}
	path, _ := pathOf(f)
	gateway := verdict.Finding{Name: api.ServiceGateway, Peer: "cloud", Direction: api.DirectionOutbound, Outcome: api.Warning, Code: catalogue.PacketsLost}
	relayed := gateway
	relayed.Code = catalogue.RelayInUse
	drops := verdict.Finding{Name: NameResources, Direction: api.DirectionOwn, Outcome: api.Warning, Code: catalogue.SocketBufferSmall,
		Args: &catalogue.Params{ResourceParams: catalogue.ResourceParams{Drops: 12}}}
	for root, list := range map[string][2][]verdict.Finding{
		"gateway":       {nil, {gateway, path}},
		"own/resources": {{drops}, {path}},
		"":              {nil, {relayed, path}},
	} {
		out, _ := verdict.Correlate(time.Now(), list[0], list[1], nil)
		got, _ := verdict.Find(out, NamePath)
		ref := ""
		if got.Because != nil {
			ref = got.Because.Ref()
		}
		if ref != root {
			t.Errorf("it follows from %q, want %q", ref, root)
		}
	}
}
