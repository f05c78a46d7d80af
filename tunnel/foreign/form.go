package foreign

import (
	"errors"
	"net/textproto"
	"regexp"
	"strings"
)

// Unfit replaces a text that does not have the form that every honest one has. The text is
// replaced as a whole: the remains of a hostile text are useless, and may still read like a
// command.
const Unfit = "?"

// Form is the syntax of a kind of text.
type Form struct {
	like *regexp.Regexp
	max  int // bytes
}

// Forms of the values that servers announce.
var (
	// Host is a DNS name, wildcard or IP address in a certificate.
	Host = Form{regexp.MustCompile(`^[0-9A-Za-z*_:][0-9A-Za-z.:*_-]*$`), 253}
	// Authority is the common name of a cluster's certificate authority: kubernetes,
	// k3s-server-ca@1690000000. It has no blanks: with blanks, a name could be a sentence that
	// tells the reader to do something.
	Authority = Form{regexp.MustCompile(`^[0-9A-Za-z*_:][0-9A-Za-z.:*_@-]*$`), 64}
	// Software is a version of Kubernetes: v1.36.3+k3s1.
	Software = Form{regexp.MustCompile(`^v?[0-9][0-9A-Za-z.+_-]*$`), 253}
)

// Max returns the form limited to so many bytes.
func (f Form) Max(bytes int) Form { return Form{f.like, bytes} }

// As returns the text if it has the form, else [Unfit]. An empty text stays empty.
func (t Text) As(f Form) string {
	if t.raw == "" || len(t.raw) <= f.max && f.like.MatchString(t.raw) {
		return t.raw
	}
	return Unfit
}

// Fit applies [Text.As] to each string.
func Fit(list []string, f Form) (out []string) {
	for _, s := range list {
		out = append(out, Of(s).As(f))
	}
	return out
}

// Err wraps a library's error about received data and hides the sender's words: they begin where
// the library quotes them, except header lines, which are not quoted. Err(nil) is nil.
func Err(err error) error {
	if err == nil {
		return nil
	}
	return redactedError{err}
}

type redactedError struct{ err error }

// Error returns the text up to the first quotation mark.
func (t redactedError) Error() string {
	if _, ok := errors.AsType[textproto.ProtocolError](t.err); ok {
		return "the answer's header is malformed"
	}
	text, _, _ := strings.Cut(t.err.Error(), `"`)
	return Of(strings.TrimRight(text, " :(")).String()
}

// Unwrap returns the whole error.
func (t redactedError) Unwrap() error { return t.err }
