package screen

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
)

// waiting is a gateway with a peer, branch, that waits for approval.
func waiting() *fake {
	f := busy()
	i := slices.IndexFunc(f.status.Peers, func(p api.PeerStatus) bool { return p.State == api.StatePending })
	p := &f.status.Peers[i]
	p.Name, p.Allow = "branch", []string{"auth", "apiServer"}
	return f
}

func (s *stage) wantChanges(want ...string) {
	s.Helper()
	if !slices.Equal(s.gateway.changes, want) {
		s.Errorf("changed %q, want %q", s.gateway.changes, want)
	}
}

func TestPicturesOfActing(t *testing.T) {
	for name, keys := range map[string][]string{
		"act":     {"j", "j", "a"},
		"confirm": {"j", "j", "a", "1"},
		"done":    {"j", "j", "a", "1", "y"},
	} {
		pictures(t, name, waiting, keys)
	}
}

func TestNothingIsChangedUntilItIsConfirmed(t *testing.T) {
	s := play(t, waiting(), 80, 24, false)
	s.press("j", "j", "a").want("do what with", "let it in")
	s.press("1").want("$ postern peer approve branch --fingerprint fcb4-8bb5-2120-8f10", "it may reach here: auth, apiServer", "y do it")
	s.press("esc").wantNot("$ postern peer approve")
	s.press("a", "1", "n").wantNot("$ postern peer approve")
	s.press("a", "1", "enter", "4", "j").want("$ postern peer approve")
	s.press("c").want("copied the command")
	s.do(s.pressed(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("y"), Paste: true}))
	s.do(s.pressed(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("yy")}))
	s.wantChanges()
	asked := s.gateway.statuses
	s.press("y").want("✓ approved branch")
	s.wantChanges("approve branch fcb4-8bb5-2120-8f10")
	if s.gateway.statuses != asked+2 { // to check that it is still the same peer, and after the change
		t.Error("what became of it is not looked at")
	}
	s.press("y", "y")
	s.wantChanges("approve branch fcb4-8bb5-2120-8f10")
	s.press("esc").wantNot("approved branch")
}

// What was typed before the question was visible does not answer it, whether it arrives at once or
// key by key.
func TestWhatWasTypedBeforeTheQuestionDoesNotAnswerIt(t *testing.T) {
	s := play(t, waiting(), 80, 24, false)
	s.press(":").typed("remove hub")
	s.Update(tea.KeyMsg{Type: tea.KeyEnter})
	for range 3 {
		s.wantNot("y do it")
		_, cmd := s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("y")})
		s.do(cmd)
		s.clock = s.clock.Add(readTime / 4)
	}
	s.wantChanges()
	s.clock = s.clock.Add(readTime)
	s.want("$ postern peer remove hub", "y do it")
	s.press("y").want("✓ removed hub")
	s.wantChanges("remove hub false")
}

// The screen need not show the change yet.
func TestAChangeIsOfThePeerThatWasShown(t *testing.T) {
	for name, meanwhile := range map[string]func([]api.PeerStatus, int) []api.PeerStatus{
		"another key": func(peers []api.PeerStatus, i int) []api.PeerStatus { peers[i].PublicKey = "another-key"; return peers },
		"gone":        func(peers []api.PeerStatus, i int) []api.PeerStatus { return slices.Delete(peers, i, i+1) },
	} {
		for _, command := range []string{"remove hub", "allow hub auth"} {
			t.Run(name+"/"+command, func(t *testing.T) {
				s := play(t, waiting(), 80, 24, false)
				s.press(":").typed(command).press("enter")
				peers := slices.Clone(s.gateway.status.Peers)
				i := slices.IndexFunc(peers, func(p api.PeerStatus) bool { return p.Name == "hub" })
				s.gateway.status.Peers = meanwhile(peers, i)
				s.press("y").want("not done: peer hub is gone, or has another key by now")
				s.wantChanges()
			})
		}
	}
}

// Another gateway may be shown by the time it is confirmed.
func TestAChangeIsDoneAtTheGatewayOfItsPeer(t *testing.T) {
	s, edge, cloud := twoGateways(t, 80, 24, nil)
	cloud.status.Peers = edge.status.Peers
	s.press(":").typed("remove hub").press("enter").want("─ remove hub at edge ─")
	s.do(s.showGateway(1))
	s.press("y").want("✓ removed hub")
	s.wantChanges("remove hub false")
	if len(cloud.changes) > 0 {
		t.Errorf("the other gateway was changed: %q", cloud.changes)
	}
}

func TestNothingIsDoneToAnOldPicture(t *testing.T) {
	s := play(t, waiting(), 80, 24, false)
	const refusal = "the picture stands still; press p first"
	s.press("p", "j", "j", "a").want(refusal)
	for _, command := range []string{"remove hub", "allow hub auth", "measure cloud", "invite", "rotate"} {
		s.notice = ""
		s.typed(":" + command).press("enter").want(refusal)
	}
}

// A question is closed when another gateway is shown.
func TestAQuestionIsOfTheGatewayThatIsShown(t *testing.T) {
	s := play(t, waiting(), 80, 24, false)
	offer := actsOn(s.data, &s.data.status.Peers[0])
	s.data = newData(s.clock)
	s.Update(offer)
	if s.mode == modeChoose {
		t.Error("it is asked")
	}
}

func TestChangesByCommand(t *testing.T) {
	s := play(t, waiting(), 80, 24, false)
	enter := func(line string) *stage { return s.press(":").typed(line).press("enter") }
	enter("allow branch auth,dns").want(`$ postern peer allow branch auth,dns`, "here: auth, dns. New: dns. No longer: apiServer;")
	s.press("y").want("✓ branch may reach here: auth, dns; :undo takes it back")
	s.press("esc")
	enter("undo").want(`$ postern peer allow branch auth,apiServer`)
	s.press("esc")
	enter("allow branch").want(`$ postern peer allow branch ""`, "here: nothing.")
	s.press("y", "esc")
	enter("remove hub").want("$ postern peer remove hub\n", "its tunnel ends, it gets no further identity")
	s.press("y", "esc")
	enter("remove cloud").want("$ postern peer remove cloud --force", "(2) are reset.")
	s.press("y", "esc")
	s.wantChanges("allow branch [auth dns]", "allow branch []", "remove hub false", "remove cloud true")
	enter("approve hub").want("hub does not wait for approval")
	enter("allow hub auth,$(reboot)").want("no service is called")
	enter("remove nobody").want("no peer is called")
	s.press("1", "g", "j", "j", "a", "3").want(":allow branch auth,apiServer▏")
}

func TestAChangeThatFailsSaysWhy(t *testing.T) {
	s := play(t, waiting(), 80, 24, false).press("j", "j", "a", "1")
	s.gateway.refusal = errors.New("you may only look\x1b[2J (ask its operator)")
	s.press("y").want("✗ not done: you may only look�[2J (ask its operator)")
	s.press("esc").wantNot("not done")
	s.press("a", "1")
	s.gateway.err = errors.New("no gateway answers")
	s.press("y").want("✗ not done: no gateway answers")
	s.wantChanges("approve branch fcb4-8bb5-2120-8f10")
}

func TestTheOutcomeOfAChangeThatWasLeftIsSaid(t *testing.T) {
	s := play(t, waiting(), 80, 24, false).press("j", "j", "a", "1")
	_, cmd := s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("y")})
	s.want("being done")
	s.press("esc").wantNot("being done")
	s.do(cmd)
	s.want("approve branch: ✓ approved branch")
}

func TestAReadOnlyScreenShowsTheCommandAndChangesNothing(t *testing.T) {
	s := play(t, waiting(), 80, 24, false)
	s.sources[0].Operator = nil
	s.press("j", "j", "a", "1").want("$ postern peer approve branch", "read-only")
	s.wantNot("y do it")
	s.press("y").wantNot("approved")
	s.press("c").want("copied the command")
	s.wantChanges()
}

func TestAChangeThatCannotBeReadCannotBeConfirmed(t *testing.T) {
	s := play(t, waiting(), 40, 8, false).press("j", "j", "a", "1", "y")
	s.wantChanges()
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	s.View()
	s.press("y")
	s.wantChanges("approve branch fcb4-8bb5-2120-8f10")
}

func TestPeersOfStrangeNamesAreNotChangedByCommand(t *testing.T) {
	s := play(t, busy(), 80, 24, false).press("j")
	s.data.peers.choose("evil-key")
	s.press("a").want("no command takes a peer of such a name")
	s.notice = ""
	s.typed(":measure").press("enter").want("no command takes a peer of such a name")
}

func TestTheMouseConfirmsNothing(t *testing.T) {
	s := play(t, waiting(), 80, 24, false).press("m", "j", "j", "a", "1")
	before := s.View()
	for y := range 24 {
		_, cmd := s.Update(tea.MouseMsg{X: 2, Y: y, Action: tea.MouseActionPress, Button: tea.MouseButtonLeft})
		s.do(cmd)
	}
	if got := s.View(); got != before || !strings.Contains(got, "postern peer approve") {
		t.Errorf("a click changed the picture:\n%s", got)
	}
	s.wantChanges()
}

// The last :allow can be reverted once, unless the peer or its grants have changed otherwise.
func TestUndo(t *testing.T) {
	s := play(t, waiting(), 80, 24, false)
	undo := func() *stage { return s.typed(":undo").press("enter") }
	branch := &s.gateway.status.Peers[slices.IndexFunc(s.gateway.status.Peers, func(p api.PeerStatus) bool { return p.Name == "branch" })]
	undo().want("nothing to undo")
	s.typed(":allow branch dns").press("enter", "y").want("branch may reach here: dns; :undo takes it back").press("esc")
	undo().want(`$ postern peer allow branch auth,apiServer`, "New: auth, apiServer. No longer: dns;") // although the screen is older
	s.press("esc").typed(":remove hub").press("enter", "y", "esc")

	branch.Allow = []string{"dns", "metrics"}
	undo().press("y").want("✗ not done: what branch may reach here was changed since, and is now: dns").press("esc")
	key := branch.PublicKey
	branch.Allow, branch.PublicKey = []string{"dns"}, "another-key"
	s.pass(time.Second)
	undo().want("not undone: peer branch is gone, or has another key by now")
	branch.PublicKey = key
	s.pass(time.Second)
	undo().press("y").want("✓ branch may reach here: auth, apiServer").wantNot("takes it back")
	s.press("esc")
	undo().want("nothing to undo")
	s.wantChanges("allow branch [dns]", "remove hub false", "allow branch [auth apiServer]")
}
