package screen

import (
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// calm is a gateway whose only checks are fine.
func calm() *fake {
	f := busy()
	f.report = api.CheckReport{Gateway: "edge", At: noon, Checks: []api.Check{
		{Name: "clock", Verdict: api.Verdict{Verdict: api.OK}},
		{Name: "gateway", Peer: "cloud", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.OK}},
	}}
	return f
}

// breaks makes the check of the peer fail.
func (f *fake) breaks() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Checks = append([]api.Check(nil), f.report.Checks...)
	f.report.Checks[1].Verdict = api.Verdict{Verdict: api.Error, Code: "PST0101", Stage: "handshake", Cause: "silence", Fix: "let UDP in"}
}

func TestTheWorstCheckIsSelectedUntilOneIsChosen(t *testing.T) {
	s := play(t, calm(), 80, 24, false).press("4")
	s.want("▸ ✓ ok       clock")
	s.gateway.breaks()
	s.pass(2*checksInterval).want("▸ ✗ error    cloud → gateway", "fix:   let UDP in")

	s = play(t, calm(), 80, 24, false).press("4", "j", "k") // clock, and on purpose
	s.gateway.breaks()
	s.pass(2*checksInterval).want("✗ error    cloud → gateway", "▸ ✓ ok       clock")
	s.press("g").want("▸ ✗ error    cloud → gateway")
}
