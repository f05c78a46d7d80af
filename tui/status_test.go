package tui

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tunnel/foreign"
)

var writeGolden = flag.Bool("update", false, "write the golden files")

// golden compares with a file in testdata, where escape sequences are written as \e, so that
// differences are readable.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = strings.ReplaceAll(got, "\x1b", `\e`)
	file := filepath.Join("testdata", name+".golden")
	if *writeGolden {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (write it with go test ./tui -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs.\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

// Common sizes: half a screen beside an editor, the classic terminal, a wide one.
func sizes() [][2]int { return [][2]int{{40, 15}, {80, 24}, {120, 40}} }

// troubled has a path by relay, a candidate in every state, and malicious texts.
func troubled() api.PeerStatus {
	return api.PeerStatus{
		Name: "edge", State: api.StateConnected,
		Path: api.Path{Kind: api.PathRelay, Remote: "203.0.113.9:49160", Source: "relay", Relay: "turn.example.net:3478", RTTSeconds: 0.041, Since: ago(4 * time.Minute), MTU: 1380,
			Reason: "the direct path to 198.51.100.20:51820 fell silent; this was the next best that answered",
			History: []api.PathEvent{
				{At: now.Add(-4 * time.Minute), Event: "relay", Reason: "198.51.100.20:51820 has not answered for 6.5 s"},
				{At: now.Add(-2 * time.Hour), Event: "direct", Reason: "first answer"},
			}},
		Candidates: []api.Candidate{
			{Address: "203.0.113.9:49160", Source: "relay", Relay: "turn.example.net:3478", State: "selected", RTTSeconds: 0.041, Reason: "the only path that answers"},
			{Address: "198.51.100.20:51820", Source: "stun", State: "failed", Reason: "no answer to 12 probes in 10 s; next try in 35 s"},
			{Address: "192.168.7.2:51820", Source: "host", State: "probing", Reason: "3 probes sent, none answered yet"},
			{Address: "[2001:db8:1234:5678:9abc:def0:1234:5678]:51820", Source: "advertised", State: "valid", RTTSeconds: 0.0123, Reason: "slower than the path in use"},
			{Address: "198.51.100.21:1024", Source: "peer", State: "frozen", Reason: "both sides are behind NATs: waits\x1b[31m until coordinated"},
			{Address: "198.51.100.22:1024", Source: "peer", State: "suspect"},
		},
	}
}

func TestAPeersCandidatesNameTheirRelay(t *testing.T) {
	at := api.Candidate{Address: "203.0.113.9:49160", Source: "relay", State: "failed"}
	over := at
	over.Relay = "turn.example.net\x1b:3478"
	got := cell.CandidateLines(&api.PeerStatus{Candidates: []api.Candidate{at, over}})
	want := []string{"203.0.113.9:49160 (relay) failed", "203.0.113.9:49160 via " + Printable(over.Relay) + " (relay) failed"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPathShowsEveryCandidateAndWhy(t *testing.T) {
	for _, width := range []int{0, 40, 80} {
		for _, color := range []bool{false, true} {
			got := Path(troubled(), width, Options{Color: color, Now: now})
			name := fmt.Sprintf("path-%d", width)
			if color {
				name += "-color"
			}
			if width > 0 {
				fits(t, strings.TrimSuffix(got, "\n"), width)
			}
			golden(t, name, got)
		}
	}
	none := api.PeerStatus{Name: "hub", Path: api.Path{Kind: api.PathNone, Reason: "nothing came yet"}, NextTry: ptr(now.Add(4 * time.Second))}
	golden(t, "path-none", Path(none, 80, Options{Now: now}))
}

func TestNetCheckSaysWhatTheNetworkMeans(t *testing.T) {
	n := api.NetCheck{
		Kind: "NetCheck", Mapping: "endpoint-dependent", Filtering: "unknown", PublicAddresses: []string{"203.0.113.8:1025", "203.0.113.8:1026"},
		STUNServers: []api.STUNServerStatus{
			{Name: "stun.example.net:3478", Address: "198.51.100.1:3478", RTTSeconds: 0.0121, Mapped: "203.0.113.8:1025"},
			{Name: "stun2.example.net:3478", Error: "no answer in 3s: is UDP to it blocked, or is it no STUN server?"},
		},
		TURNServers: []api.TURNServerStatus{
			{Address: "turn.example.net:3478", Transport: "tcp", Relayed: "198.51.100.1:49160", RTTSeconds: 0.02},
			{Address: "other.example.net:3478", Error: "401: wrong\x07 username or password"},
		},
		PortMapping: api.PortMappingStatus{Mode: "off", State: "not asked for"},
		Hints:       []string{"This NAT gives every destination another port, so peers behind a port-restricted NAT are reached over a relay only."},
	}
	for _, width := range []int{0, 40, 80} {
		got := NetCheck(n, width, Options{Now: now})
		if width > 0 {
			fits(t, strings.TrimSuffix(got, "\n"), width)
		}
		golden(t, fmt.Sprintf("netcheck-%d", width), got)
	}
}

func TestNetCheckShowsWhatTheProxyDoes(t *testing.T) {
	n := api.NetCheck{Proxy: &api.ProxyStatus{Address: "proxy.example.net:3128"}}
	if got := NetCheck(n, 0, Options{Now: now}); !strings.Contains(got, "HTTP proxy        proxy.example.net:3128, not used yet\n") {
		t.Errorf("not used yet:\n%s", got)
	}
	n.Proxy.Targets = []api.ProxyTarget{
		{Address: "turn.example.net:443", At: now.Add(-time.Minute)},
		{Address: "auth.example.net:443", At: now.Add(-2 * time.Minute), Error: "the proxy \x1b[31mrefuses"},
		{Address: "c:1", At: now}, {Address: "d:1", At: now},
	}
	got := NetCheck(n, 0, Options{Now: now})
	for _, want := range []string{"connected to turn.example.net:443 1m ago", "not to auth.example.net:443 2m ago ✗ the proxy"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") || strings.Contains(got, "d:1") {
		t.Errorf("it shows too much:\n%s", got)
	}
}

func TestScreens(t *testing.T) {
	for _, s := range sizes() {
		for _, color := range []bool{false, true} {
			name := fmt.Sprintf("watch-%dx%d", s[0], s[1])
			if color {
				name += "-color"
			}
			t.Run(name, func(t *testing.T) {
				lines := frame(answered(busy(), nil), s[0], s[1], WatchOptions{Color: color}, now)
				if len(lines) != s[1] {
					t.Errorf("%d lines on a screen of %d", len(lines), s[1])
				}
				fits(t, strings.Join(lines, "\n"), s[0])
				golden(t, name, strings.Join(lines, "\n")+"\n")
			})
		}
	}
}

func answered(s api.Status, err error) update { return update{[]api.Status{s}, err} }

func TestTables(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		width int
	}{
		"table-80":   {Table(busy(), 80, Options{Now: now}), 80},
		"table-pipe": {Table(busy(), 0, Options{Now: now}), 0},
		"wide-pipe":  {Table(busy(), 0, Options{Now: now, Wide: true}), 0},
		"empty-40":   {Table(api.Status{Gateway: api.GatewayStatus{Name: "edge"}}, 40, Options{Now: now}), 40},
		"peer-80":    {Peer(busy().Peers[1], 80, Options{Now: now}), 80},
		"peer-color": {Peer(busy().Peers[0], 60, Options{Now: now, Color: true}), 60},
	} {
		t.Run(name, func(t *testing.T) {
			fits(t, tc.text, tc.width)
			golden(t, name, tc.text)
		})
	}
}

// fits checks that no line is wider than the terminal, and that colours are the only control
// sequences.
func fits(t *testing.T, text string, width int) {
	t.Helper()
	for i, line := range strings.Split(text, "\n") {
		if w := ansi.StringWidth(line); width > 0 && w > width {
			t.Errorf("line %d is %d wide on a screen of %d: %q", i+1, w, width, line)
		}
		for _, r := range ansi.Strip(line) {
			if !foreign.Shown(r) {
				t.Errorf("line %d holds %U: %q", i+1, r, line)
			}
		}
	}
}

func TestNoWidthBreaksTheScreen(t *testing.T) {
	for width := 1; width <= 220; width++ {
		fits(t, Table(busy(), width, Options{Now: now, Wide: true}), width)
		for i := range busy().Peers {
			fits(t, Peer(busy().Peers[i], width, Options{Now: now, Color: true}), width)
		}
		if lines := frame(answered(busy(), errors.New("gone")), width, 5, WatchOptions{Color: true}, now); len(lines) != 5 {
			t.Fatalf("width %d: %d lines on a screen of 5", width, len(lines))
		}
	}
}

func TestColourNeverSaysWhatWordsDoNot(t *testing.T) {
	for _, s := range sizes() {
		plain := Table(busy(), s[0], Options{Now: now})
		coloured := Table(busy(), s[0], Options{Now: now, Color: true})
		if ansi.Strip(coloured) != plain {
			t.Errorf("width %d: text differs with colour:\n%s\n%s", s[0], ansi.Strip(coloured), plain)
		}
		if coloured == plain {
			t.Errorf("width %d: no colour at all", s[0])
		}
		for _, seq := range strings.Split(coloured, "\x1b[")[1:] {
			switch code, _, _ := strings.Cut(seq, "m"); code {
			case "", "0", "1", "2", "31", "32", "33":
			default:
				t.Errorf("width %d: the sequence %q is not of the terminal's own first colours", s[0], code)
			}
		}
	}
}

func TestLostGatewayKeepsItsLastTable(t *testing.T) {
	lines := frame(answered(busy(), errors.New("no gateway answers on /run/postern/postern.sock")), 80, 24, WatchOptions{}, now)
	text := strings.Join(lines, "\n")
	if !strings.HasPrefix(text, "✗ no answer: no gateway answers on /run/postern/postern.sock\n\ngateway edge") {
		t.Errorf("got:\n%s", text)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"cloud → edge ü": "cloud → edge ü",
		"\x1b[2J":        "\uFFFD[2J",
		"a\nb\tc\r":      "a\uFFFDb\uFFFDc\uFFFD",
		"a\u202eb\u2066": "a\uFFFDb\uFFFD",
		"\u200b\u2028":   "\uFFFD\uFFFD",
		"\x9b31m":        "\uFFFD31m",
		"\u009b31m":      "\uFFFD31m",
		"\U000E0041":     "\uFFFD",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{cell.Age(-time.Second), "0s"}, {cell.Age(59 * time.Second), "59s"}, {cell.Age(119 * time.Second), "1m"}, {cell.Age(47 * time.Hour), "47h"}, {cell.Age(49 * time.Hour), "2d"},
		{cell.RTT(0), ""}, {cell.RTT(0.00031), "0.3 ms"}, {cell.RTT(0.0121), "12 ms"}, {cell.RTT(1.25), "1.2 s"},
		{cell.Size(0), "0 B"}, {cell.Size(999), "999 B"}, {cell.Size(999.6), "1.0 kB"}, {cell.Size(1240), "1.2 kB"}, {cell.Size(123_456), "123 kB"}, {cell.Size(5e15), "5.0 PB"}, {cell.Size(5e19), "50000 PB"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func TestScreenNeedsATerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := Watch(context.Background(), r, w, nil, WatchOptions{}); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("got %v, want ErrNoTerminal", err)
	}
}

// A peer that does not answer is not shown as healthy.
func TestNothingOfAnUnconfirmedPeerIsShownAsWell(t *testing.T) {
	s := busy()
	s.Peers = slices.DeleteFunc(s.Peers, func(p api.PeerStatus) bool { return p.Name != "cloud" })
	s.Peers[0].UnconfirmedSince = ago(4 * time.Second)
	for name, text := range map[string]string{"the table": Table(s, 0, Options{Now: now}), "the peer": Peer(s.Peers[0], 0, Options{Now: now})} {
		if !strings.Contains(text, "unconfirmed") || !strings.Contains(text, "? was ok") || strings.Contains(text, "✓ ok") || strings.Contains(text, "● connected") {
			t.Errorf("%s shows:\n%s", name, text)
		}
	}
	if text := Table(s, 0, Options{Now: now}); !strings.Contains(text, "nothing sent since 11:59:56 UTC was answered") {
		t.Errorf("it does not say since when:\n%s", text)
	}
}
