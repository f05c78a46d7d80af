package check

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

func TestLANVerdicts(t *testing.T) {
	well := LANFacts{AnnouncedAs: "edge (2)", Interfaces: []string{"eth0", "wlan0"}, Found: 2}
	r := LAN(&well)
	if len(r) != 1 || r[0].Name != NameLAN || r[0].Outcome != api.OK || !strings.Contains(r[0].Stages[0].Detail, `announced as "edge (2)" on eth0, wlan0; 2 found`) {
		t.Errorf("got %+v, want ok", r)
	}
	for _, c := range []struct {
		p       OwnProblem
		verdict api.Outcome
		cause   string
	}{
		{OwnProblem{Code: catalogue.LANNoInterface, Params: catalogue.Params{Names: []string{"eth0 (down)"}}}, api.Error, "no interface for that: eth0 (down)"},
		{OwnProblem{Code: catalogue.LANNotJoined, Params: catalogue.Params{Names: []string{"eth0"}, Detail: "address already in use"}}, api.Error, "on eth0: address already in use"},
		{OwnProblem{Code: catalogue.LANSilent, Params: catalogue.Params{Names: []string{"eth0"}, Age: 95 * time.Second}}, api.Warning, "from another host on eth0 for 1m35s"},
		{OwnProblem{Code: catalogue.LANPod, Params: catalogue.Params{Names: []string{"eth0"}}}, api.Warning, "runs in a pod on the cluster's network (eth0)"},
		{OwnProblem{Code: catalogue.LANOtherKey, Params: catalogue.Params{Peer: "cloud", Endpoints: []string{"192.168.1.9:51820"},
			DiscoveryParams: catalogue.DiscoveryParams{Known: "aaaa", Found: "bbbb"}}}, api.Warning, "(192.168.1.9:51820) announces the name of cloud with the key bbbb, but cloud has aaaa here"},
		{OwnProblem{Code: catalogue.LANRecord, Params: catalogue.Params{Names: []string{"odd\x1b[2J"}, Detail: "its TXT record has no version (v=1)"}}, api.Warning, "the records that odd\ufffd[2J announces on the local network: its TXT record has no version"},
	} {
		l := well
		l.Problems = []OwnProblem{c.p}
		r := LAN(&l)
		if len(r) != 1 {
			t.Fatalf("%s: %d results", c.p.Code, len(r))
		}
		if v := r[0].Verdict(); r[0].Name != NameLAN || v.Verdict != c.verdict || v.Code != string(c.p.Code) || !strings.Contains(v.Cause, c.cause) || v.Fix == "" {
			t.Errorf("got %+v, want %s with %q", v, c.verdict, c.cause)
		}
	}
}
