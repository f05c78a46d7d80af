package tui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
	"github.com/postern-dev/postern/tui/cell"
)

// ways returns common paths, and one with malicious texts.
func ways() map[string]way.Way {
	s := busy()
	blocked := s.Peers[1]
	blocked.Path.Traffic, blocked.Local = nil, nil
	unknown := api.Verdict{Verdict: api.Unknown}
	blocked.Reachability = api.Reachability{
		Outbound: api.Targets{Auth: unknown, APIServer: unknown, Gateway: api.Verdict{Verdict: api.Error, Code: "PST0106", Stage: "probe",
			Cause: "packets of cloud arrive here from 198.51.100.7:51820, but nothing that is sent from here to 198.51.100.7:51820 is answered: UDP from here to cloud is blocked on the way",
			Steps: api.Steps{{Text: "at cloud let it in", Command: "nft insert rule inet filter input ip saddr 203.0.113.8 udp dport 51820 accept"}}}},
		Inbound: api.Targets{Auth: unknown, APIServer: unknown, Gateway: unknown},
	}
	served := s.Peers[1]
	served.Reachability.Outbound.APIServer = api.Verdict{Verdict: api.OK}
	served.Offers = []string{"auth", "apiServer", "registry", "metrics", "logs"}
	served.Local = []api.Local{{Service: "registry", Address: "127.0.0.1:5000"}, {Service: "metrics", Address: "127.0.0.1:9090"}, {Service: "gone", Address: "127.0.0.1:9999"}}
	clusters := []api.ClusterService{
		{Service: "shop/db", Direction: api.ServiceImported, Peer: "cloud", State: api.ServiceInUse, Addresses: []string{"10.0.0.9:20001"}},
		{Service: "team/a-service-with-a-long-name", Direction: api.ServiceImported, Peer: "cloud", State: api.ServiceRefused, Code: "PST0904",
			Cause: "cloud exports it to this gateway, and there is no such namespace for it here", Fix: "kubectl create namespace team"},
		{Service: "other/web", Direction: api.ServiceImported, Peer: "hub", State: api.ServiceRefused, Code: "PST0904"},
		{Service: "own/web", Direction: api.ServiceExported, Peer: "cloud", State: api.ServiceInUse},
	}
	relayed := troubled()
	return map[string]way.Way{
		"silent":  way.Of(&s, &s.Peers[0], nil, nil),
		"warned":  way.Of(&s, &s.Peers[1], nil, nil),
		"hostile": way.Of(&s, &s.Peers[2], nil, nil),
		"blocked": way.Of(&s, &blocked, nil, nil),
		"served":  way.Of(&s, &served, nil, clusters),
		"relayed": way.Of(&s, &relayed, nil, nil),
	}
}

func TestDiagramsShowWhereTheWayBreaks(t *testing.T) {
	for name, w := range ways() {
		for _, width := range []int{0, 40, 80} {
			got := Diagram(w, width, Options{Now: now})
			if width > 0 {
				fits(t, strings.TrimSuffix(got, "\n"), width)
			}
			golden(t, fmt.Sprintf("diagram-%s-%d", name, width), got)
		}
		golden(t, fmt.Sprintf("diagram-%s-color", name), Diagram(w, 80, Options{Color: true, Now: now}))
	}
	ascii := Diagram(ways()["blocked"], 80, Options{ASCII: true, Now: now})
	if strings.ContainsAny(ascii, "│╳┆┌├└") {
		t.Errorf("without Unicode's lines there are such:\n%s", ascii)
	}
}

func TestWaysFitEveryWidth(t *testing.T) {
	for name, w := range ways() {
		for width := 1; width <= 220; width++ {
			plain := Diagram(w, width, Options{Now: now})
			fits(t, strings.TrimSuffix(plain, "\n"), width)
			if coloured := Diagram(w, width, Options{Color: true, Now: now}); ansi.Strip(coloured) != plain {
				t.Fatalf("%s, width %d: colour changes what is said:\n%s\n%s", name, width, ansi.Strip(coloured), plain)
			}
			line := cell.WayLine(&w, width, cell.Bare, cell.BoxLines)
			fits(t, line, width)
			if coloured := cell.WayLine(&w, width, cell.Dark, cell.BoxLines); ansi.Strip(coloured) != line {
				t.Fatalf("%s, width %d: colour changes what is said:\n%s\n%s", name, width, ansi.Strip(coloured), line)
			}
		}
	}
}

func TestAWayOnOneLine(t *testing.T) {
	all := ways()
	for name, want := range map[string]string{
		"blocked": "edge ─✓─ NAT ─→✗←✓─ ? firewall ─→?←✓─ cloud  PST0106  was 12 ms  auth →?←?",
		"served":  "edge ─✓─ NAT ─✓─ firewall ─✓─ cloud  PST0904  12 ms  auth →✓←✓  apiServer →✓←-",
		"warned":  "edge ─✓─ NAT ─✓─ firewall ─✓─ cloud  12 ms  auth →✓←✓  apiServer →!←-",
	} {
		w := all[name]
		if got := cell.WayLine(&w, 80, cell.Bare, cell.BoxLines); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	w := all["served"]
	if got := cell.WayLine(&w, 100, cell.Bare, cell.BoxLines); !strings.HasSuffix(got, "  apiServer →✓←-  services →!") {
		t.Errorf("with more room: %s", got)
	}
}

func TestChecksDrawTheWayToAPeerWithAnError(t *testing.T) {
	s := busy()
	s.Peers[0].Name = "site"
	got := Checks(checked(), s, 80, Options{Now: now})
	_, site, _ := strings.Cut(got, "\nsite\n")
	if !strings.Contains(site, "┆  out ? in ?") || !strings.Contains(site, "◄ PST0101") {
		t.Errorf("the way to site is not drawn:\n%s", got)
	}
	if cloud, _, _ := strings.Cut(got, "\nsite\n"); strings.Contains(cloud, "out ? in ?") || strings.Contains(cloud, "out ✓ in ✓") {
		t.Errorf("the way to a peer without an error is drawn:\n%s", got)
	}
}
