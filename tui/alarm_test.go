package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

func TestTheTableTellsOfStolenTickets(t *testing.T) {
	s := busy()
	s.Alarms = []api.Alarm{
		{Code: "PST0320", Subject: "peer cloud", Count: 9, Message: "peer's service cannot be reached"},
		{Code: "PST0210", Subject: "ticket 0011", Event: api.EventAlarm, First: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Count: 12,
			Message: "audit", Attrs: []api.LogAttr{{Key: "reason", Value: "a second key\x1b[2J tried it"}}},
	}
	text := Table(s, 0, Options{Now: now})
	if want := "\n✗ alarm PST0210 ticket 0011, 12 times since 2026-01-02 03:04:05: a second key\ufffd[2J tried it\n"; !strings.HasSuffix(text, want) {
		t.Errorf("the table ends in\n%s\nwant %q", text[max(0, len(text)-300):], want)
	}
	if strings.Contains(text, "PST0320 peer") {
		t.Error("what a check tells of as well is in the table twice")
	}
	for line := range strings.Lines(Table(s, 40, Options{Now: now})) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 40 {
			t.Errorf("a line of %d: %q", n, line)
		}
	}
}

// What has no column in the table is on a line below, and what several peers have is shown once.
func TestTheTableTellsOfEverythingOnce(t *testing.T) {
	down := api.Verdict{Verdict: api.Error, Code: "PST0121", Cause: "no network link is up: eth0", Fix: "plug in the cable"}
	s := api.Status{Problems: []api.Check{
		{Name: "network", Direction: api.DirectionOwn, Verdict: down},
		{Name: "tickets", Direction: api.DirectionOwn, Verdict: api.Verdict{Verdict: api.Warning, Code: "PST0210", Cause: "a second key"}},
		{Name: "mtu", Peer: "cloud", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.Warning, Code: "PST0601", Cause: "small"}},
	}}
	for _, name := range []string{"cloud", "hub"} {
		s.Peers = append(s.Peers, api.PeerStatus{Name: name, State: api.StateConnected, Reachability: api.Reachability{Outbound: api.Targets{Gateway: down}}})
	}
	for _, name := range []string{"a", "b", "c"} {
		s.Problems = append(s.Problems, api.Check{Name: name, Direction: api.DirectionOwn, Verdict: api.Verdict{Verdict: api.Warning, Code: "PST0701", Cause: name + " fails"}})
	}
	text := Table(s, 0, Options{Now: now})
	for _, want := range []string{"✗ 1 of 4, fix this first · cloud → gateway, hub → gateway: PST0121: no network link is up: eth0\n",
		"\n! 2 of 4 · tickets: PST0210: a second key\n", "\n! 4 of 4 · cloud → mtu: PST0601: small\n", "\n! also: PST0701 b, PST0701 c\n  fix: run `postern check`\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("the table lacks %q, or has it twice:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "PST0121"); n != 1 {
		t.Errorf("the root is told %d times:\n%s", n, text)
	}
}
