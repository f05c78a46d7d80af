package mcs

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// MaxLabel is the longest name of a namespace, a service or a port in bytes (RFC 1123 §2.1).
const MaxLabel = 63

const labelCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-"

// Patterns mean namespaces: each is the name of one, or has asterisks for any characters.
type Patterns []string

// CheckPattern reports why a text cannot be one of [Patterns].
func CheckPattern(s string) error {
	if s == "" || len(s) > MaxLabel || strings.Trim(s, "-") != s || strings.Trim(s, labelCharacters+"*") != "" {
		return fmt.Errorf("%q means no namespace (want at most %d lower-case letters, digits and hyphens, and * for any characters)", s, MaxLabel)
	}
	return nil
}

// Mean reports whether a namespace is meant. Those of the system (kube-…) and the gateway's own are
// meant only by their whole name, since nobody who writes an asterisk thinks of them.
func (p Patterns) Mean(namespace, own string) bool {
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
