package screen

import (
	"strings"
	"testing"
	"time"
)

// A configuration on trial counts down, and can be confirmed.
func TestAConfigurationOnTrial(t *testing.T) {
	f := busy()
	at := noon.Add(102 * time.Second)
	f.status.Gateway.ConfigUndoneAt = &at
	for i := range f.status.Peers {
		f.status.Peers[i].UndoneAt = &at
	}
	play(t, f, 40, 10, false).want("undone in 1m42s: postern config confirm")
	s := play(t, f, 120, 40, false).want("configuration on trial: undone in 1m42s; to keep it: postern config confirm")
	s.pass(2 * time.Second).want("undone in 1m40s")
	s.press(":").typed("peer cloud").press("enter").want("on trial", "postern peer confirm cloud")
	s.press(":").typed("confirm").press("enter").want("$ postern config confirm", "the one before returns")
	s.pass(time.Second).press("y").want("✓ the configuration stays")
	s.wantChanges("config confirm")
	s.press("n")
	s.gateway.status.Gateway.ConfigUndoneAt = nil
	s.pass(2 * time.Second).wantNot("configuration on trial")
	s.press(":").typed("confirm").press("enter").want("no configuration is on trial")
}

// A notice waits until it can be seen, if something else takes its place.
func TestANoticeWaitsUntilItIsSeen(t *testing.T) {
	f := busy()
	for name, keys := range map[string][]string{"a command": {":"}, "a question": {"a"}, "help": {"?"}} {
		s := play(t, f, 80, 24, false)
		s.press(":").typed("allow nobody " + strings.Repeat("x", 70)).press("enter").want("nobody")
		shown := s.View()
		passes := func() {
			s.pass(2 * noticeFor)
			s.Update(tickMsg{})
		}
		s.press(keys...)
		passes()
		if s.press("esc"); s.View() != shown {
			t.Errorf("after %s:\n%s\nwant the notice:\n%s", name, s.View(), shown)
		}
		passes()
		if s.View() == shown {
			t.Errorf("the notice stays after %s", name)
		}
	}
}
