package mcs

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// MaxLabel is the maximum length of the name of a namespace, service or port, in bytes (RFC 1123
// §2.1).
const MaxLabel = 63

const labelCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-"

// Patterns select namespaces. Each is a name, or contains asterisks for any characters.
type Patterns []string

// CheckPattern returns why a text is not a valid pattern.
func CheckPattern(s string) error {
	if s == "" || len(s) > MaxLabel || strings.Trim(s, "-") != s || strings.Trim(s, labelCharacters+"*") != "" {
		return fmt.Errorf("%q means no namespace (want at most %d lower-case letters, digits and hyphens, and * for any characters)", s, MaxLabel)
	}
	return nil
}

// Match reports whether a namespace is selected. Those of the system (kube-…) and the gateway's own
// match only by their whole name, because an asterisk is not meant to include them.
func (p Patterns) Match(namespace, own string) bool {
	if strings.HasPrefix(namespace, "kube-") || namespace == own {
		return slices.Contains(p, namespace)
	}
	return slices.ContainsFunc(p, func(pattern string) bool {
		ok, err := path.Match(pattern, namespace)
		return ok && err == nil
	})
}

// isLabel reports whether a text is a DNS label.
func isLabel(s string) bool {
	return s != "" && len(s) <= MaxLabel && strings.Trim(s, "-") == s && strings.Trim(s, labelCharacters) == ""
}
