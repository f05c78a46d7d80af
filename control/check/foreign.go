package check

import (
	"errors"
	"net/textproto"
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
	// authorityForm is that of an authority's common name, as clusters' have it: kubernetes,
	// k3s-server-ca@1690000000. There is no blank in it, since with one a name can be a
	// sentence that tells whoever reads it to do something.
	authorityForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.:*_@-]{0,63}$`)
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
// libraries quote of another's words begins with a quotation mark, but for header lines,
// which come bare.
func foreignError(err error) string {
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return "the answer's header is malformed"
	}
	text, _, _ := strings.Cut(err.Error(), `"`)
	return strings.TrimRight(text, " :(")
}
