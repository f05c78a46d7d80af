package check

import (
	"regexp"
	"strings"
)

// What servers at the other end say of themselves ends in sentences that are read, and
// in fixes that are pasted into a shell. So it is taken only in the form that it has
// wherever it is honest; what has another is replaced as a whole, since what is left of a
// hostile text may still read as a command.

// unfit stands for such a text.
const unfit = "?"

// maxForeign bounds a name, in bytes.
const maxForeign = 253

var (
	// hostForm is that of DNS names, wildcards and IP addresses in certificates.
	hostForm = regexp.MustCompile(`^[0-9A-Za-z*_:][0-9A-Za-z.:*_-]*$`)
	// authorityForm is that of common and distinguished names: k3s has an @ in its own.
	authorityForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.:*_@+=, -]*$`)
	// softwareForm is that of a version of Kubernetes: v1.36.3+k3s1.
	softwareForm = regexp.MustCompile(`^v?[0-9][0-9A-Za-z.+_-]*$`)
)

// fit gives a text that has its form, else unfit; what is empty stays empty.
func fit(s string, form *regexp.Regexp) string {
	if s == "" || len(s) <= maxForeign && form.MatchString(s) {
		return s
	}
	return unfit
}

// foreignError is the part of an error about a server that is not the server's: what Go's
// libraries quote of another's words begins with a quotation mark.
func foreignError(err error) string {
	text, _, _ := strings.Cut(err.Error(), `"`)
	return strings.TrimRight(text, " :(")
}
