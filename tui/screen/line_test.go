package screen

import (
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"
)

func TestEditingALine(t *testing.T) {
	key := func(k tea.KeyType) tea.KeyMsg { return tea.KeyMsg{Type: k} }
	typed := func(s string) tea.KeyMsg { return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(s)} }
	var l line
	for _, step := range []struct {
		key  tea.KeyMsg
		want string
	}{
		{key(tea.KeyBackspace), "▏"},
		{key(tea.KeyDelete), "▏"},
		{key(tea.KeyCtrlW), "▏"},
		{typed("peer claud"), "peer claud▏"},
		{key(tea.KeyLeft), "peer clau▏d"},
		{key(tea.KeyLeft), "peer cla▏ud"},
		{key(tea.KeyBackspace), "peer cl▏ud"},
		{typed("o"), "peer clo▏ud"},
		{key(tea.KeyHome), "▏peer cloud"},
		{key(tea.KeyLeft), "▏peer cloud"},
		{key(tea.KeyDelete), "▏eer cloud"},
		{key(tea.KeyRight), "e▏er cloud"},
		{key(tea.KeyEnd), "eer cloud▏"},
		{key(tea.KeyRight), "eer cloud▏"},
		{key(tea.KeyCtrlW), "eer ▏"},
		{tea.KeyMsg{Type: tea.KeySpace, Runes: []rune(" ")}, "eer  ▏"},
		{key(tea.KeyCtrlW), "▏"},
		{typed("ü門\x1b[2J\u202e\n"), "ü門[2J▏"},
		{key(tea.KeyCtrlA), "▏ü門[2J"},
		{key(tea.KeyCtrlE), "ü門[2J▏"},
		{key(tea.KeyCtrlU), "▏"},
	} {
		l.key(step.key)
		if got := l.draw(); got != step.want {
			t.Fatalf("after %v: %q, want %q", step.key, got, step.want)
		}
	}
	l.key(typed(strings.Repeat("x", 3*maxLine)))
	if n := len(l.text()); n != maxLine {
		t.Errorf("%d characters are kept, want %d", n, maxLine)
	}
}

func TestCommonPrefix(t *testing.T) {
	for _, tc := range []struct {
		texts []string
		want  string
	}{{[]string{"peer "}, "peer "}, {[]string{"sort rtt", "sort rx"}, "sort r"}, {[]string{"a", "b"}, ""}, {[]string{"ab", "a"}, "a"}} {
		if got := commonPrefix(tc.texts); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.texts, got, tc.want)
		}
	}
}
