package mcs

import (
	"strings"
	"testing"
)

func TestPatternsMeanNamespaces(t *testing.T) {
	for _, tc := range []struct {
		patterns  string
		namespace string
		want      bool
	}{
		{"", "shop", false},
		{"shop", "shop", true},
		{"shop", "shop-a", false},
		{"shop-*", "shop-a", true},
		{"bank,shop-*", "shop-a", true},
		{"*", "shop", true},
		{"*", "kube-system", false},
		{"kube-*", "kube-system", false},
		{"kube-*,kube-system", "kube-system", true},
		{"*", "postern", false},
		{"post*", "postern", false},
		{"postern", "postern", true},
	} {
		if got := Patterns(strings.Split(tc.patterns, ",")).Match(tc.namespace, "postern"); got != tc.want {
			t.Errorf("%q means %s: %v, want %v", tc.patterns, tc.namespace, got, tc.want)
		}
	}
	for _, s := range []string{"", "a b", "A", "-a", "a-", "[a]", "a/b", "a\x00", "?", strings.Repeat("a", 64)} {
		if CheckPattern(s) == nil {
			t.Errorf("%q is taken for a pattern", s)
		}
	}
}
