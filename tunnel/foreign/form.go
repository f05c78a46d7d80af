package foreign

import (
	"errors"
	"net/textproto"
	"regexp"
	"strings"
)

// Unfit stands for a text that has not the form that it has wherever it is honest. The text
// is replaced as a whole: what is left of a hostile one is no use to anyone, and may still
// read as a command.
const Unfit = "?"

// Form is one that texts of a kind have.
type Form struct {
	like *regexp.Regexp
	max  int // bytes
}

// Forms of what servers say of themselves.
var (
	// Host is that of DNS names, wildcards and IP addresses in certificates.
	Host = Form{regexp.MustCompile(`^[0-9A-Za-z*_:][0-9A-Za-z.:*_-]*$`), 253}
	// Authority is that of an authority's common name, as clusters' have it: kubernetes,
	// k3s-server-ca@1690000000. There is no blank in it, since with one a name can be a
	// sentence that tells whoever reads it to do something.
	Authority = Form{regexp.MustCompile(`^[0-9A-Za-z*_:][0-9A-Za-z.:*_@-]*$`), 64}
	// Software is that of a version of Kubernetes: v1.36.3+k3s1.
	Software = Form{regexp.MustCompile(`^v?[0-9][0-9A-Za-z.+_-]*$`), 253}
)

// Most is a form of which texts have at most so many bytes.
func (f Form) Most(bytes int) Form { return Form{f.like, bytes} }

// As is the text if it has a form, and else [Unfit]; what is empty stays empty.
func (t Text) As(f Form) string {
	if t.raw == "" || len(t.raw) <= f.max && f.like.MatchString(t.raw) {
		return t.raw
	}
	return Unfit
}

// Fit returns texts in a form.
func Fit(list []string, f Form) (out []string) {
	for _, s := range list {
		out = append(out, Of(s).As(f))
	}
	return out
}

// Err is an error of a library about what someone else sent, without their words: those
// begin where the library quotes them, but for header lines, which come bare. It is nil for
// nil.
func Err(err error) error {
	if err == nil {
		return nil
	}
	return told{err}
}

type told struct{ err error }

// Error is the text up to the first quotation mark.
func (t told) Error() string {
	if _, ok := errors.AsType[textproto.ProtocolError](t.err); ok {
		return "the answer's header is malformed"
	}
	text, _, _ := strings.Cut(t.err.Error(), `"`)
	return Of(strings.TrimRight(text, " :(")).String()
}

// Unwrap is the whole error.
func (t told) Unwrap() error { return t.err }
