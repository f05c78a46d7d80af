package screen

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/past"
)

// shows reports whether the frame contains a text.
func (s *stage) shows(text string) bool { return strings.Contains(s.View(), text) }

func (s *stage) want(texts ...string) *stage {
	s.Helper()
	for _, text := range texts {
		if !s.shows(text) {
			s.Errorf("%q is not shown:\n%s", text, s.View())
		}
	}
	return s
}

func (s *stage) wantNot(texts ...string) {
	s.Helper()
	for _, text := range texts {
		if s.shows(text) {
			s.Errorf("%q is shown:\n%s", text, s.View())
		}
	}
}

func TestTheSelectionIsAPeerAndNotARow(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press("j")
	s.want("▸ hub")
	// A peer appears before all others, and another disappears.
	s.gateway.status.Peers = append(s.gateway.status.Peers[1:], api.PeerStatus{Name: "aaa", PublicKey: "aaa-key", State: api.StateConnected})
	s.pass(time.Second).want("▸ hub", "aaa")
	s.press("s").want("▸ hub", "sorted by peer")
	s.press("s", "s", "s", "s").want("▸ hub", "sorted by rx, the greatest first")
	s.press("/").typed("cloud").want("▸ cloud")
	s.wantNot("hub")
	s.press("enter").want("/cloud")
	s.press("esc").want("▸ hub")
	s.press("/").typed("cloud").press("enter", "j", "esc").want("▸ hub") // j could not move
	s.press("2").want("hub  ◌ connecting")
}

func TestAPeerThatIsGonePassesTheSelectionOn(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press("j")
	s.gateway.status.Peers = slices.DeleteFunc(slices.Clone(s.gateway.status.Peers), func(p api.PeerStatus) bool { return p.Name == "hub" })
	s.pass(time.Second).want("▸ new")
	s.gateway.status.Peers = nil
	s.pass(time.Second).want("no peers yet: postern invite")
	s.press("j", "G", "enter", "r", "c").want("no peers yet")
}

func TestEnterLeadsToThePeerAndEscBack(t *testing.T) {
	s := play(t, busy(), 80, 60, false).press("enter")
	s.want("[2 Peer]", "site-with-a-name-of-forty-characters-xyz  ✗ failed", "no answer to 12 probes in 10 s", "PST0101 handshake")
	s.press("left").want("�evil�  ◇ pending", "fcb4-8bb5-2120-8f10")
	s.press("esc").want("[1 Overview]", "▸ new")
}

func TestFilters(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.press("/").typed("!CLOUD").wantNot("  cloud  ")
	s.want("hub", "/!CLOUD▏")
	s.press("esc").want("  hub", "▸ site")
	s.press("/").typed("nobody at all").want("the filter picks no peer")
	s.press("ctrl+w", "ctrl+u").want("▸ site")
	s.press("esc", "4", "/").typed("pst0503").press("enter").want("▸ ! warning", "PST0503")
	s.wantNot("PST0810")
}

func TestCommands(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.press(":").typed("thr").press("tab").want(":throughput▏")
	s.press("enter").want("[3 Throughput]")
	s.press(":").typed("peer c").press("tab").want(":peer cloud▏")
	s.press("enter").want("[2 Peer]", "cloud  ● connected")
	s.press("esc").want("[3 Throughput]")
	s.press(":").typed("peer nobody").press("enter").want(`no peer is called "nobody"`)
	s.press("1", ":").typed("sort ").want("handshake")
	s.typed("rtt").press("enter").want("sorted by rtt, the greatest first", "▸ cloud")
	s.press(":").typed("sort size").press("enter").want("sort by one of trouble, peer, state")
	s.press("2", ":").typed("sort rtt").press("enter").want("nothing to sort here")
	s.press(":").typed("graph ascii").press("enter")
	if s.data.graph != graphASCII {
		t.Errorf("graph is %q", s.data.graph)
	}
	s.press(":").typed("graph oil").press("enter").want("graph is one of braille, block, ascii")
	s.press(":").typed("reboot").press("enter").want("no command reboot")
	s.press(":").typed("che").press("enter").want("[4 Checks]")
	s.press("1", ":").typed("filter hub").press("enter").wantNot("  cloud")
	s.press(":").typed("probe hub").press("enter")
	s.press(":").typed("probe").press("enter")
	s.press(":").typed("probe nobody").press("enter").want(`no peer is called "nobody"`)
	if want := []string{"hub", ""}; !slices.Equal(s.gateway.checked, want) {
		t.Errorf("checked %q, want %q", s.gateway.checked, want)
	}
	if cmd := s.execute("quit"); cmd == nil || cmd() != tea.Quit() {
		t.Error(":quit does not quit")
	}
}

func TestQuitting(t *testing.T) {
	for _, keys := range [][]string{{"q"}, {"ctrl+c"}, {"/", "ctrl+c"}, {"?", "q"}, {":", "ctrl+c"}} {
		s := play(t, busy(), 80, 24, false).press(keys[:len(keys)-1]...)
		msg := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q")}
		if keys[len(keys)-1] == "ctrl+c" {
			msg = tea.KeyMsg{Type: tea.KeyCtrlC}
		}
		if _, cmd := s.Update(msg); cmd == nil || cmd() != tea.Quit() {
			t.Errorf("%q does not quit", keys)
		}
	}
	s := play(t, busy(), 80, 24, false).press("/")
	if s.press("q").mode != modeFilter {
		t.Error("q in a filter is no letter")
	}
}

func TestKeysThatCameAsOneAreTakenOneByOne(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.do(s.pressed(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("1/hub")}))
	s.want("/hub▏", "▸ hub")
	s.wantNot("  cloud")
	s.press("esc")
	s.do(s.pressed(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("jjk")}))
	s.want("▸ hub")
}

func TestWhatIsPastedIsNoKey(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.do(s.pressed(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q"), Paste: true}))
	s.do(s.pressed(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("4:quit\r"), Paste: true}))
	s.want("[1 Overview]")
	s.press("/")
	s.do(s.pressed(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("h\x1bu\u202eb\n"), Paste: true}))
	s.want("/hub▏")
}

func TestTheGatewayIsAskedOnceASecondAtMost(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	for range 20 {
		s.pass(100 * time.Millisecond)
	}
	if s.gateway.statuses != 3 {
		t.Errorf("asked %d times in 2 s, want 3", s.gateway.statuses)
	}
}

func TestOneSnapshotAtATime(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.clock = s.clock.Add(time.Minute)
	if first := s.poll(); first == nil {
		t.Fatal("nothing is asked after a minute")
	}
	s.clock = s.clock.Add(time.Minute)
	if second := s.poll(); second != nil {
		t.Error("asked again before the first answer")
	}
}

func TestAFrozenScreenStandsStill(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press("p")
	s.want("= frozen")
	before := s.View()
	s.gateway.status.Peers = nil
	if s.pass(time.Minute).View() != before || s.gateway.statuses != 1 {
		t.Errorf("the screen moves, asked %d times:\n%s", s.gateway.statuses, s.View())
	}
	s.press("j").want("▸ hub")
	s.press("p").want("no peers yet")
	s.wantNot("frozen")
}

func TestASnapshotUnderWayDoesNotMoveAFrozenScreen(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.clock = s.clock.Add(time.Second)
	cmd := s.poll()
	s.press("p")
	before := s.View()
	s.gateway.status.Peers = nil
	s.do(cmd)
	if s.View() != before {
		t.Errorf("the screen moves:\n%s", s.View())
	}
	s.clock = s.clock.Add(time.Second)
	s.press("p").want("no peers yet")
}

func TestOutOfFocusNothingIsAsked(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.Update(tea.BlurMsg{})
	s.pass(time.Minute).want("= paused, not in focus")
	if s.gateway.statuses != 1 {
		t.Errorf("asked %d times, want 1", s.gateway.statuses)
	}
	_, cmd := s.Update(tea.FocusMsg{})
	s.do(cmd)
	s.wantNot("paused")
	if s.gateway.statuses != 2 {
		t.Errorf("asked %d times, want 2", s.gateway.statuses)
	}
	s.Update(tea.BlurMsg{})
	s.pass(time.Minute).press("j").want("▸ hub")
	s.wantNot("paused")
	if s.gateway.statuses != 3 {
		t.Errorf("asked %d times after a key, want 3", s.gateway.statuses)
	}
}

func TestALostGatewayKeepsItsLastPictureAndIsAskedAgain(t *testing.T) {
	s := play(t, busy(), 120, 24, false)
	s.gateway.err = errors.New("no gateway answers on /run/postern/postern.sock")
	s.pass(time.Second).want("✗ lost the gateway 0s ago, asking again in 1s: no gateway answers on /run/postern/postern.sock", "▸ site")
	asked := func() int { n := s.gateway.statuses; s.gateway.statuses = 0; return n }
	asked()
	var waits []int
	for range 5 {
		seconds := 0
		for asked() == 0 {
			s.pass(time.Second)
			seconds++
		}
		waits = append(waits, seconds)
	}
	if want := []int{1, 2, 4, 8, 15}; !slices.Equal(waits, want) {
		t.Errorf("waited %v s, want %v", waits, want)
	}
	s.want("✗ lost the gateway 30s ago")
	s.gateway.err = nil
	s.pass(maxBackoff).wantNot("lost")
	if s.data.failures != 0 {
		t.Errorf("%d failures after an answer", s.data.failures)
	}
}

func TestAGatewayThatNeverAnsweredSaysWhy(t *testing.T) {
	s := play(t, &fake{err: errors.New("permission denied on /run/postern/postern.sock\x1b[2J")}, 60, 15, false)
	s.want("✗ no gateway answers, asking again in 1s", "permission denied on /run/postern/postern.sock�[2J", "? help")
	s.gateway.err, s.gateway.status = nil, busyStatus()
	s.pass(time.Second).want("▸ site")
}

func TestProbing(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press("4")
	changed := api.Check{Name: "gateway", Peer: "site-with-a-name-of-forty-characters-xyz", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.OK}}
	s.gateway.report = api.CheckReport{Checks: []api.Check{changed}, Summary: api.CheckSummary{OK: 1}}
	s.press("r").want("checked site-with-a-name-of-forty-characters-xyz: 1 ok", "PST0810", "▸ ✓ ok")
	s.wantNot("✗ error")
	s.gateway.err = errors.New("the gateway is closing")
	s.press("g", "r").want("not checked: the gateway is closing")
	if want := []string{"site-with-a-name-of-forty-characters-xyz", ""}; !slices.Equal(s.gateway.checked, want) {
		t.Errorf("checked %q, want %q: the second is this gateway's own", s.gateway.checked, want)
	}
}

func TestOneRunOfChecksAtATime(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	_, cmd := s.Update(probeMsg{"cloud"})
	s.want("| checking cloud")
	s.Update(spinMsg{})
	s.want("/ checking cloud")
	if _, again := s.Update(probeMsg{"hub"}); again != nil {
		t.Error("two runs at a time")
	}
	s.do(cmd)
	s.wantNot("checking cloud")
}

func TestCopyingTheFix(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press("4", "c")
	want := "\x1b]52;c;" + base64.StdEncoding.EncodeToString([]byte("open UDP port 51820 towards 198.51.100.7 on the firewall there")) + "\a"
	if got := s.written.String(); got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	s.want("copied the fix for site-with-a-name-of-forty-characters-xyz → gateway")
	s.written.Reset()
	s.press("1", "G", "c")
	if want := base64.StdEncoding.EncodeToString([]byte("set services.apiServer.serverName: kubernetes there")); !strings.Contains(s.written.String(), want) {
		t.Errorf("wrote %q, want %q in it", s.written.String(), want)
	}
	s.written.Reset()
	s.press("k", "c").want("nothing to copy here")
	for _, evil := range []string{"rm -rf /\n", "a\x1b]52;c;x\a", "a\u202eb", "a\u200bb"} {
		s.do(s.copy(copyMsg{evil, "it"}))
		s.want("not copied: the text holds what is not shown")
	}
	s.do(s.copy(copyMsg{strings.Repeat("x", maxCopy+1), "it"}))
	s.want("not copied: terminals drop")
	if s.written.Len() != 0 {
		t.Errorf("wrote %q", s.written.String())
	}
}

func TestHelpNamesEveryKeyAndCommand(t *testing.T) {
	s := play(t, busy(), 100, 100, false).press("?")
	s.want("everywhere", "shift+tab", "freeze", ":peer NAME", ":graph STYLE", "! warning", "checks", "copy the fix")
	for _, v := range s.views {
		for _, b := range v.bindings() {
			s.want(b.Help().Desc)
		}
	}
	s.press("?").want("▸ site")
	s.press("?", "4").want("[4 Checks]", "▸ ✗ error")
	s.Update(tea.WindowSizeMsg{Width: 40, Height: 10})
	s.press("?", "G").want("and tried again")
	s.Update(tea.MouseMsg{X: 5, Y: 5, Action: tea.MouseActionPress, Button: tea.MouseButtonWheelUp})
	s.wantNot("and tried again")
	s.press("g").want("moving")
}

func TestTheMouseIsOffUntilAsked(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	_, cmd := s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("m")})
	if cmd == nil || cmd() != tea.EnableMouseCellMotion() {
		t.Error("m does not switch the mouse on")
	}
	click := func(x, y int) {
		_, cmd := s.Update(tea.MouseMsg{X: x, Y: y, Action: tea.MouseActionPress, Button: tea.MouseButtonLeft})
		s.do(cmd)
	}
	click(5, 8)
	s.want("▸ new")
	click(5, 23) // the foot
	click(5, 14) // no row
	s.want("▸ new")
	s.Update(tea.MouseMsg{X: 5, Y: 8, Action: tea.MouseActionPress, Button: tea.MouseButtonWheelUp})
	s.want("▸ site")
	click(strings.Index(ansiLine(s.View(), s.tabTop), "4 Checks"), s.tabTop)
	s.want("[4 Checks]")
	click(5, s.viewTop+7)
	s.want("▸ ! warning  resources")
	_, cmd = s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("m")})
	if cmd == nil || cmd() != tea.DisableMouse() {
		t.Error("m does not switch the mouse off")
	}
}

func ansiLine(picture string, n int) string { return strings.Split(picture, "\n")[n] }

func TestChecksAreReadInFullOnASmallScreen(t *testing.T) {
	s := play(t, busy(), 40, 12, false).press("4")
	var seen strings.Builder
	for range 60 {
		seen.WriteString(s.View())
		s.press("j")
	}
	for _, text := range []string{"on the firewall", "x509: certificate is valid", "net.core.rmem_max=7500000", "depends on", "exposure"} {
		if !strings.Contains(seen.String(), text) {
			t.Errorf("%q was never shown", text)
		}
	}
	for range 60 {
		s.press("k")
	}
	s.want("▸ ✗ error")
	s.press("pgdown", "pgdown", "pgdown", "pgdown", "pgdown", "pgdown").press("G").want("▸ - off")
	s.press("pgup", "pgup", "pgup", "pgup", "pgup", "pgup", "pgup").want("▸ ✗ error")
}

func TestChecksExpand(t *testing.T) {
	s := play(t, busy(), 80, 40, false).press("4", "/").typed("gateway").press("enter", "j", "j")
	s.want("▸ ✓ ok       cloud → gateway")
	s.wantNot("13 ms")
	s.press("enter").want("✓ handshake  ok      13 ms")
	s.press("enter").wantNot("13 ms")
	s.press("s").want("sorted by peer")
	s.want("▸ ✓ ok       cloud → gateway")
}

func TestACommandNeverTakesWhatCannotBeShown(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press(":").typed("peer new").press("tab")
	s.want(":peer new▏  ")
	fits(t, s.View(), 80, 24)
	s.gateway.status.Peers = []api.PeerStatus{{Name: "only\x1b]52;c;eA==\a"}}
	s.press("esc").pass(time.Second).press(":").typed("peer ").press("tab")
	fits(t, s.View(), 80, 24)
	s.input.set("a\x1b[2J\u202e\nb")
	if got := s.input.text(); got != "a[2Jb" {
		t.Errorf("the line is %q", got)
	}
}

// A restarted gateway numbers its log from 1 again: its new records are shown, even if they are few.
func TestTheLogOfAGatewayThatWasStartedAgain(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press("6")
	last := s.data.lastLogged()
	if last < 2 {
		t.Fatalf("the last record is %d, so there is nothing to be seen here", last)
	}
	s.gateway.status.Gateway.StartedAt = s.now().Add(500 * time.Millisecond)
	s.gateway.log.Records = []api.LogRecord{{Seq: 1, Time: s.now().Add(600 * time.Millisecond), Level: "INFO", Message: "gateway is up again"}}
	s.pass(2 * time.Second).want("gateway is up again")
}

// Pasted into a shell, a text with backquotes runs what is between them. What may be for the other
// side is never copied without asking.
func TestOnlyWhatIsToBeTypedHereIsCopiedAsACommand(t *testing.T) {
	v := api.Steps{{Text: "at cloud let it in (`nft zero`)", Command: "nft one"}, {Text: "let it out here", Command: "nft two", Or: true}, {Text: "again", Command: "nft one"}}
	got, ok := copyFix(v, "cloud").(chooseMsg)
	if !ok || len(got.choices) != 3 || got.choices[0].text != "nft one" || got.choices[1].text != "nft two" {
		t.Fatalf("got %+v", got)
	}
	if words := got.choices[2].msg.(copyMsg); strings.Contains(words.text, "`") || !strings.Contains(words.text, "'nft two'") || !strings.Contains(words.what, "in words") {
		t.Errorf("got %+v", words)
	}
	v = api.Steps{{Text: "let it in here", Command: "nft one", Here: true}}
	if got, ok := copyFix(v, "cloud").(copyMsg); !ok || got.text != "nft one" || !strings.Contains(got.what, "command") {
		t.Errorf("got %+v", got)
	}
}

// The copied fix is the first one on the screen, whatever it is about: a state, the gateway itself,
// or the path.
func TestTheFixThatIsShownIsCopied(t *testing.T) {
	own := api.Check{Name: "ticket", Direction: api.DirectionOwn, Verdict: api.Verdict{
		Verdict: api.Warning, Code: "PST0210", Cause: "the ticket was tried by a second key", Steps: api.Steps{{Text: "make another", Command: "postern invite", Here: true}}}}
	for name, test := range map[string]struct {
		change func(s *api.Status, p *api.PeerStatus)
		keys   []string
		want   string
	}{
		"the gateway itself": {func(s *api.Status, _ *api.PeerStatus) { s.Problems = []api.Check{own} }, nil, "postern invite"},
		"its state": {func(_ *api.Status, p *api.PeerStatus) {
			p.State, p.ApprovalFingerprint = api.StatePending, "fcb4-8bb5-2120-8f10"
		}, []string{"1"}, "postern peer approve cloud"},
		"no fault, over a relay": {func(_ *api.Status, p *api.PeerStatus) { p.Path.Kind = api.PathRelay }, []string{"1"}, "postern netcheck"},
	} {
		t.Run(name, func(t *testing.T) {
			f := busy()
			f.report.Checks = nil
			ok := api.Verdict{Verdict: api.OK}
			p := cloud(ok, ok, ok)
			p.Local, p.Reachability.Outbound.APIServer = nil, ok
			f.status.Peers = []api.PeerStatus{p}
			test.change(&f.status, &f.status.Peers[0])
			for _, copies := range [][]string{{"c"}, {":", "c", "o", "p", "y", " ", "f", "i", "x", "enter"}} {
				s := play(t, f, 160, 40, false) // wide enough for no command to be cut
				s.want(test.want)
				s.press(copies...).press(test.keys...)
				if want := ansi.SetSystemClipboard(test.want); s.written.String() != want {
					t.Errorf("%q wrote %q, want %q", copies, s.written.String(), want)
				}
			}
		})
	}
}

// What is said of many peers takes a while to read.
func TestAGatewayOfManyPeersIsAskedLessOften(t *testing.T) {
	for peers, want := range map[int]int{4: 12, 1000: 4, 5000: 3} {
		f := many(peers)
		s := play(t, f, 80, 24, false)
		asked := f.statuses
		for range 12 {
			s.pass(time.Second)
		}
		if n := f.statuses - asked; n != want {
			t.Errorf("with %d peers asked %d times in 12 s, want %d", peers, n, want)
		}
	}
}

func TestPeersAreFoundByAnythingOfThem(t *testing.T) {
	s := play(t, busy(), 120, 40, false)
	cloud := s.gateway.status.Peers[1]
	for _, text := range []string{"pst0503", "not kubernetes.default.svc", cloud.PublicKey[:12], "connected", "direct", cloud.Address} {
		s.press("/", "ctrl+u").typed(text).press("enter").want("▸ cloud").press("esc")
	}
}

func TestWideShowsTheLastHourOnATerminalOf80(t *testing.T) {
	play(t, busy(), 80, 24, false).press("w").want("→apg ←apg", "LAST HOUR", "━")
	// Beside each row as many of the six as there is room for, outbound first; beside the selected peer all.
	for width, want := range map[int][]string{80: {"→auth", "→api", "→gw"}, 120: {"→auth"}, 150: {"→auth", "→api", "→gw"}, 200: {"→auth", "→api", "→gw", "←auth", "←api", "←gw"}} {
		s := play(t, busy(), width, 40, false)
		if width < twoColumns {
			s.press("w")
		}
		titles := regexp.MustCompile("  PEER [^│]*").FindString(s.View())
		for _, strip := range past.Verdicts {
			if got := strings.Contains(titles, " "+strip.Name); got != slices.Contains(want, strip.Name) {
				t.Errorf("at %d: the strip %s is shown: %v\n%s", width, strip.Name, got, titles)
			}
			if width >= twoColumns && !regexp.MustCompile("(?m)│ "+strip.Name+" ").MatchString(s.View()) {
				t.Errorf("at %d: %s of the selected peer is not shown:\n%s", width, strip.Name, s.View())
			}
		}
	}
}

func TestThePeerInTroubleIsCheckedFirst(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.checkFirst = true
	for range 3 {
		_, cmd := s.Update(tickMsg{})
		s.do(cmd)
	}
	if want := []string{"site-with-a-name-of-forty-characters-xyz"}; !slices.Equal(s.gateway.checked, want) {
		t.Errorf("checked %q, want %q, once", s.gateway.checked, want)
	}
}

// A screen that is open for days needs no more memory than one that is open for hours, whatever
// changes and is shown.
func TestAScreenStaysAsLargeAsItIs(t *testing.T) {
	const step, long = 30 * time.Second, 2 * time.Hour
	s, r := play(t, many(60), 80, 24, true), rand.New(rand.NewPCG(1, 2))
	names := 0
	use := func() {
		for end := s.clock.Add(long); s.clock.Before(end); {
			f := s.gateway
			f.checked, f.histories, f.pinged, f.changes = nil, nil, nil, nil
			s.written.Reset()
			f.status.Peers, f.report.Checks = slices.Clone(f.status.Peers), slices.Clone(f.report.Checks)
			for i := range f.status.Peers {
				names++
				p, name := &f.status.Peers[i], fmt.Sprint("guest-", names)
				for j := range f.report.Checks {
					if c := &f.report.Checks[j]; c.Peer == p.Name {
						c.Peer = name
					}
				}
				p.Name, p.PublicKey, p.Labels = name, name, map[string]string{"floor": name}
			}
			s.data.frozen = false
			s.pass(step).press(walk(r)[0])
		}
	}
	size := func() int {
		s.press("esc", "1")
		runtime.GC()
		runtime.GC() // the second run frees what pools hold
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	use()
	before := size()
	use()
	if more := size() - before; more > 1<<19 {
		t.Errorf("it takes %d bytes more after %v, of %d before", more, long, before)
	}
}
