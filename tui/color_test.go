package tui

import (
	"strings"
	"testing"
)

func TestTrueColorIsToldByTheEnvironment(t *testing.T) {
	for env, want := range map[string]bool{
		"": false, "TERM=xterm-256color": false, "COLORTERM=truecolor": true, "COLORTERM=24bit": true, "COLORTERM=1": false, "TERM=xterm-direct": true,
		"TERM=screen COLORTERM=truecolor": false, "TERM=screen-256color COLORTERM=truecolor TMUX=/tmp/tmux-0/default,1,0": true,
	} {
		got := TrueColor(func(name string) string {
			for _, v := range strings.Fields(env) {
				if value, found := strings.CutPrefix(v, name+"="); found {
					return value
				}
			}
			return ""
		})
		if got != want {
			t.Errorf("%q: %v, want %v", env, got, want)
		}
	}
}
