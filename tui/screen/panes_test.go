package screen

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// blocked has two healthy peers, and one that is received but does not receive.
func blocked() *fake {
	f := busy()
	cloud := f.status.Peers[1]
	cloud.Local, cloud.Reachability.Outbound.APIServer = nil, api.Verdict{Verdict: api.OK}
	f.status.Peers, f.report = nil, api.CheckReport{}
	for _, name := range []string{"site-10", "site-2", "site-1"} {
		p := cloud
		p.Name, p.PublicKey = name, name+"-key"
		f.status.Peers = append(f.status.Peers, p)
	}
	f.block("site-10")
	return f
}

// block makes a peer report what its firewall causes, while the gateway still calls it connected.
func (f *fake) block(name string) {
	unknown := api.Verdict{Verdict: api.Unknown}
	for i := range f.status.Peers {
		if p := &f.status.Peers[i]; p.Name == name {
			p.Reachability = api.Reachability{
				Outbound: api.Targets{Auth: unknown, APIServer: unknown, Gateway: api.Verdict{Verdict: api.Error, Code: "PST0106", Stage: "probe",
					Cause: "packets of " + name + " arrive here, but nothing that is sent from here is answered", Steps: api.Steps{{Text: "at " + name + " let it in", Command: "nft insert rule one"}, {Text: "if that changes nothing, let it out here", Command: "nft insert rule two"}}}},
				Inbound: api.Targets{Auth: unknown, APIServer: unknown, Gateway: unknown},
			}
		}
	}
}

func TestPicturesOfABlockedPeer(t *testing.T) { pictures(t, "blocked", blocked, nil) }

// The first frame must show where it breaks and what to do.
func TestTheWorstIsSelectedUntilAPeerIsChosen(t *testing.T) {
	s := play(t, blocked(), 120, 40, false)
	s.want("● 2 connected ✗ 1 broken", "▸ site-10", "out ✗ in ✓", "◄ PST0106 the peer's packets arrive", "fix:   1. at site-10 let it in:", "peers 1 of 3, by trouble", "throughput")
	s.gateway.status = blocked().status
	s.gateway.status.Peers[0].Reachability = s.gateway.status.Peers[1].Reachability
	s.gateway.block("site-2")
	s.pass(time.Second).want("▸ site-2")
	s.press("j").want("▸ site-1 ")
	s.gateway.block("site-10")
	s.pass(time.Second).want("▸ site-1 ", "✗ 2 broken")
	s.press("g").want("▸ site-2")
	s.press("s").want("by peer")
	if a, b := strings.Index(s.View(), "site-2"), strings.Index(s.View(), "site-10"); a > b {
		t.Errorf("site-10 comes before site-2:\n%s", s.View())
	}
}

// The fix is shown whole if the screen has room for it: the path then moves below the peers.
func TestALongFixTakesTheRoomOfTheThroughput(t *testing.T) {
	s := play(t, blocked(), 120, 40, false)
	s.want("throughput", "let it out")
	steps := api.Steps{{Text: "1"}}
	for i := range 10 {
		steps = append(steps, api.Step{Text: fmt.Sprintf("step %d of many, each of which says what to do there", i)})
	}
	for i := range s.gateway.status.Peers {
		if p := &s.gateway.status.Peers[i]; p.Name == "site-10" {
			p.Reachability.Outbound.Gateway.Steps = append(steps, api.Step{Text: "the last"})
		}
	}
	s.pass(time.Second).want("11. step 9", "12. the last", "▸ site-10", "◄ PST0106", "┌ ? auth").wantNot("─ throughput")
	many := s.gateway.status.Peers
	for i := range 60 {
		p := many[1]
		p.Name, p.PublicKey = fmt.Sprint("z", i), fmt.Sprint("z-key", i)
		s.gateway.status.Peers = append(s.gateway.status.Peers, p)
	}
	s.pass(time.Second).want("12. the last", "▸ site-10", "◄ PST0106", "peers 1 of 63")
}

// Without Unicode the screen has the same widths and content, in ASCII characters.
func TestPicturesWithoutUnicode(t *testing.T) {
	for name, gateway := range gateways() {
		for _, size := range sizes() {
			s := play(t, gateway(), size[0], size[1], true).press(":").typed("graph ascii").press("enter")
			for _, k := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "?", ":"} {
				picture := s.press(k).View()
				fits(t, picture, size[0], size[1])
				for _, r := range picture {
					if r > '~' {
						t.Fatalf("%s: %q in\n%s", name, r, picture)
					}
				}
			}
		}
	}
	s := play(t, busy(), 120, 40, false).press(":").typed("graph ascii").press("enter")
	golden(t, "ascii-120x40", s.View())
}

// C and POSIX are ASCII, and are set on purpose, for example for a script or a serial console. An
// empty environment says nothing: a container's shell has one on any terminal.
func TestTheGraphFollowsTheTerminal(t *testing.T) {
	for env, want := range map[string]string{
		"": graphBraille, "LANG=C": graphASCII, "LC_ALL=POSIX": graphASCII, "LANG=en_US": graphASCII, "LC_ALL=C LANG=C.UTF-8": graphASCII,
		"LANG=de_DE.UTF-8": graphBraille, "LC_ALL=C.utf8": graphBraille, "LC_CTYPE=C.UTF-8 LANG=C": graphBraille, "LC_ALL=C.UTF-8@x LANG=C": graphBraille,
		"LANG=de_DE.ISO-8859-1@euro": graphASCII, "LC_CTYPE=ru_RU.KOI8-R": graphASCII,
		"TERM=linux": graphASCII, "TERM=linux LANG=C.UTF-8": graphASCII, "TERM=vt100": graphASCII, "TERM=xterm-256color": graphBraille,
		"TERM=dumb": graphASCII, "TERM=dumb LANG=C.UTF-8": graphBraille, // an editor's shell
	} {
		set := map[string]string{}
		for _, v := range strings.Fields(env) {
			name, value, _ := strings.Cut(v, "=")
			set[name] = value
		}
		if got := GraphFor(func(name string) string { return set[name] }); got != want {
			t.Errorf("%q: %s, want %s", env, got, want)
		}
	}
}

func TestWhatIsShownOfALostGatewayIsGrey(t *testing.T) {
	s := play(t, blocked(), 120, 40, true)
	if !strings.Contains(s.View(), "\x1b[32m") {
		t.Fatal("nothing is green at first")
	}
	s.gateway.err = errors.New("connection refused")
	s.pass(time.Second).want("as of 12:00:00")
	if picture := s.View(); strings.Contains(picture, "\x1b[32m") || !strings.Contains(ansi.Strip(picture), "▸ site-10") {
		t.Errorf("something is green, or not there any more:\n%q", picture)
	}
	s.gateway.err = nil
	if picture := s.pass(maxBackoff).View(); !strings.Contains(picture, "\x1b[32m") {
		t.Error("nothing is green again")
	}
}

func TestClicksBesideThePeersChooseNone(t *testing.T) {
	s := play(t, blocked(), 120, 40, false)
	click := func(x, y int) {
		_, cmd := s.Update(tea.MouseMsg{X: x, Y: s.viewTop + y, Action: tea.MouseActionPress, Button: tea.MouseButtonLeft})
		s.do(cmd)
	}
	click(80, 3)
	s.want("▸ site-10")
	click(5, 3)
	s.want("▸ site-1 ")
}

func TestACommandIsChosenAmongThoseOfAFix(t *testing.T) {
	s := play(t, blocked(), 80, 24, false)
	s.gateway.report.Checks = []api.Check{{Name: "gateway", Peer: "site-10", Direction: api.DirectionOutbound, Verdict: s.gateway.status.Peers[0].Reachability.Outbound.Gateway}}
	s.pass(checksInterval).press("c")
	s.want("copy which?", "1  nft insert rule one", "2  nft insert rule two", "3  at site-10 let it in: 'nft insert rule one'", "1–9 copy it")
	fits(t, s.View(), 80, 24)
	s.press("9").wantNot("copy which?")
	if s.written.Len() != 0 {
		t.Errorf("wrote %q", s.written.String())
	}
	s.press("c", "2").want("copied the command")
	if want := ansi.SetSystemClipboard("nft insert rule two"); s.written.String() != want {
		t.Errorf("wrote %q, want %q", s.written.String(), want)
	}
	s.press("c", "esc").wantNot("copy which?")
	s.want("▸ site-10")
}

// Everything about a peer can be copied: from the menu of actions, and by name.
func TestWhatThereIsOfAPeerIsCopied(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press("G", "a", "7")
	s.want("copy what of cloud?", "1  fix: set services.apiServer", "2  address: fd1e:", "3  remote: 198.51.100.7:51820", "4  key: 3p7bf", "5  json").wantNot("{")
	s.press("3").want("copied the remote of cloud")
	s.typed(":copy key").press("enter").want("copied the key of cloud")
	s.typed(":copy").press("enter", "2").want("copied the address of cloud")
	want := ""
	for _, text := range []string{"198.51.100.7:51820", "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=", "fd1e:d2b1:b1f0:8c5d:a39b:2a5c:a6f9:fc9f"} {
		want += ansi.SetSystemClipboard(text)
	}
	if s.written.String() != want {
		t.Errorf("wrote %q, want %q", s.written.String(), want)
	}
	s.written.Reset()
	s.typed(":copy json").press("enter").want("copied the json of cloud")
	text, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(strings.TrimPrefix(s.written.String(), "\x1b]52;c;"), "\a"))
	var p api.PeerStatus
	if err := errors.Join(err, json.Unmarshal(text, &p)); err != nil || p.Name != "cloud" || len(p.Candidates) != 2 {
		t.Errorf("copied %q: %v", text, err)
	}
	i := slices.IndexFunc(s.gateway.status.Peers, func(p api.PeerStatus) bool { return p.Name == "cloud" })
	s.gateway.status.Peers[i].Flows = slices.Repeat(s.gateway.status.Peers[i].Flows, 100)
	s.pass(time.Second).typed(":copy").press("enter").wantNot("5  json") // Terminals would drop it.
	s.press("esc").typed(":copy name").press("enter").want("cloud has no name to copy; it has fix, address, remote, key")
}

// The palette says what each command does, and narrows to what was typed.
func TestThePaletteHelps(t *testing.T) {
	s := play(t, busy(), 200, 60, false).press(":")
	for _, c := range s.commands() {
		s.want(c.help()[0]+" ", c.does)
	}
	s.typed("me").want(":measure [NAME]  what a peer's path carries").wantNot(":ping")
	s.typed("asure cl").want(":measure [NAME]", "cloud")
	s.press("esc").wantNot("─ commands")
	play(t, busy(), 80, 24, false).press(":").want("… type on, or ? for all of them")
}

func TestKeysAnswer(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.press("m").want("mouse on: shift selects text")
	if _, cmd := s.Update(tea.ResumeMsg{}); cmd == nil || cmd() != tea.EnableMouseCellMotion() {
		t.Error("after a suspension the mouse is off")
	}
	s.press("m").want("mouse off")
	if _, cmd := s.Update(tea.ResumeMsg{}); cmd != nil {
		t.Error("after a suspension the mouse is on")
	}
	if _, cmd := s.Update(tea.KeyMsg{Type: tea.KeyCtrlZ}); cmd == nil || cmd() != tea.Suspend() {
		t.Error("ctrl+z does not suspend")
	}
}

// The help sheet fits into 120x40, and into a width of 80, even with several gateways.
func TestTheHelpSheetIsNotCut(t *testing.T) {
	several, _ := fleetOf(t, 120, 40, false)
	notCut := func(s *stage) {
		t.Helper()
		_, sheet, _ := strings.Cut(s.View(), "\n") // below the first line, which has a long name
		if strings.Contains(sheet, "…") {
			t.Errorf("it is cut:\n%s", sheet)
		}
	}
	for _, s := range []*stage{play(t, busy(), 120, 40, false), several} {
		s.press("?").want("moving", "✗ failed", ":filter", ":remove NAME", ":graph STYLE", "suspend")
		s.wantNot("lines 1")
		notCut(s)
		s.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
		for s.want("lines "); !s.shows("relay\n"); s.press("j") {
			notCut(s)
			if s.helpTop > 100 {
				t.Fatal("there is no end of it")
			}
		}
	}
}

// Problems of the path to a peer, or of the gateway itself, are shown with cause and fix, not only
// named at the top.
func TestWhatIsWrongBesideThePeersEndpointsIsSaid(t *testing.T) {
	f := busy()
	verdict := func(code, cause, fix string) api.Verdict {
		return api.Verdict{Verdict: api.Warning, Code: code, Cause: cause, Fix: fix}
	}
	f.status.Problems = []api.Check{
		{Name: "tickets", Direction: api.DirectionOwn, Verdict: verdict("PST0210", "the ticket of edge was tried by a second key", "make another ticket")},
		{Name: "mtu", Peer: "cloud", Direction: api.DirectionOutbound, Verdict: verdict("PST0601", "large packets vanish", "set spec.mtu to 1280")},
		{Name: "mtu", Peer: "hub", Direction: api.DirectionOutbound, Verdict: verdict("PST0601", "hub's large packets vanish", "do it there")},
	}
	s := play(t, f, 120, 40, false).press("G")
	s.want("! 3 of 4 · cloud → mtu: PST0601: large packets", "set spec.mtu to 1280", "! 2 of 4 · this gateway, tickets: PST0210: the", "make another ticket")
	s.wantNot("hub's large")
	s.press("enter").want("[2 Peer]", "! 2 of 4 · this gateway, tickets: PST0210", "make another ticket")
}
