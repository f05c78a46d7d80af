package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// checked returns a check with every outcome, and malicious texts.
func checked() api.CheckReport {
	at := ago(12 * time.Second)
	return api.CheckReport{
		Kind: "CheckReport", Gateway: "edge\x1b[2J", At: now, Summary: api.CheckSummary{OK: 2, Warning: 2, Error: 1, Unknown: 2, Off: 1},
		Checks: []api.Check{
			{Name: "exposure", Direction: api.DirectionOwn, Verdict: api.Verdict{Verdict: api.OK, CheckedAt: at}},
			{Name: "resources", Direction: api.DirectionOwn, Verdict: api.Verdict{
				Verdict: api.Warning, Code: "PST0810", Stage: "resources", CheckedAt: at, Cause: "the socket's receive buffer is 212992 bytes, and 1024 datagrams were dropped for want of room",
				Fix: "sysctl -w net.core.rmem_max=7500000",
			}},
			{Name: "gateway", Peer: "cloud", Target: "gateway", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.OK, RTTSeconds: 0.0121, CheckedAt: at},
				Stages: []api.CheckStage{{Stage: "probe", Verdict: api.OK, Seconds: 0.0121}}},
			{Name: "apiServer", Peer: "cloud", Target: "apiServer", Direction: api.DirectionOutbound, Verdict: api.Verdict{
				Verdict: api.Warning, Code: "PST0503", Stage: "tls", CheckedAt: at, Cause: "the certificate names kubernetes, not kubernetes.default.svc", Fix: "set services.apiServer.serverName: kubernetes there",
			}, Stages: []api.CheckStage{
				{Stage: "tcp", Verdict: api.OK, Seconds: 0.0123, Via: "in-band"},
				{Stage: "tls", Verdict: api.Warning, Seconds: 0.0312, Via: "in-band", Detail: "x509: certificate is valid for kubernetes\x1b]52;c;ZXZpbA==\a, not kubernetes.default.svc"},
			}},
			{Name: "inbound-apiServer", Peer: "cloud", Target: "apiServer", Direction: api.DirectionInbound, Verdict: api.Verdict{Verdict: api.Off}},
			{Name: "gateway", Peer: "site", Target: "gateway", Direction: api.DirectionOutbound, Verdict: api.Verdict{
				Verdict: api.Error, Code: "PST0101", Stage: "handshake", CheckedAt: at, Cause: "198.51.100.7:51820 does not answer handshakes (sent 4 in 20 s)\u202e", Fix: "open UDP port 51820 towards 198.51.100.7 on the firewall there",
			}, Stages: []api.CheckStage{{Stage: "probe", Verdict: api.Error, Seconds: 5, Detail: "no answer to 12 probes"}}},
			{Name: "auth", Peer: "site", Target: "auth", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.Unknown}, DependsOn: "gateway"},
			{Name: "inbound-apiServer", Peer: "site", Target: "apiServer", Direction: api.DirectionInbound, Verdict: api.Verdict{Verdict: api.Unknown}, DependsOn: "own/upstream-apiServer"},
		},
	}
}

func TestChecksSayCauseFixAndStages(t *testing.T) {
	for _, width := range []int{0, 40, 80} {
		for _, color := range []bool{false, true} {
			name := fmt.Sprintf("checks-%d", width)
			if color {
				name += "-color"
			}
			got := Checks(checked(), api.Status{}, width, Options{Color: color, Now: now})
			fits(t, got[:len(got)-1], width)
			golden(t, name, got)
		}
	}
	golden(t, "checks-wide", Checks(checked(), api.Status{}, 0, Options{Now: now, Wide: true}))
	golden(t, "checks-none", Checks(api.CheckReport{Gateway: "edge"}, api.Status{}, 40, Options{Now: now}))
}

func TestChecksFitEveryWidth(t *testing.T) {
	for width := 1; width <= 220; width++ {
		plain := Checks(checked(), api.Status{}, width, Options{Now: now, Wide: true})
		fits(t, plain, width)
		if coloured := Checks(checked(), api.Status{}, width, Options{Now: now, Wide: true, Color: true}); ansi.Strip(coloured) != plain {
			t.Errorf("width %d: colour changes what is said:\n%s\n%s", width, ansi.Strip(coloured), plain)
		}
	}
}

func TestWhatDependsOnAnotherCheckSaysOnlyThat(t *testing.T) {
	got := Checks(checked(), api.Status{}, 0, Options{Now: now})
	for _, want := range []string{"? unknown  → auth  depends on gateway\n", "? unknown  ← apiServer  depends on this gateway's upstream-apiServer\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}
