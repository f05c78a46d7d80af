package auth

import (
	"regexp"
	"strings"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// clean makes an untrusted text safe to show, in at most max characters.
func clean(s string, max int) string { return strings.TrimSpace(foreign.Of(s).Cut(max)) }

// unseen reports whether a character is not shown as itself but affects a terminal or a line.
func unseen(r rune) bool { return !foreign.Shown(r) }

var (
	// versionForm matches the start of a protocol version; the rest is ignored.
	versionForm = regexp.MustCompile(`^[0-9]{1,5}\.[0-9]{1,5}`)
	// softwareForm matches a build's version.
	softwareForm = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z.+_ -]*[0-9A-Za-z.+_-])?$`)
	// serverNameForm matches a name or address in a certificate. The name goes into a kubeconfig
	// and into commands for operators to paste.
	serverNameForm = regexp.MustCompile(`^[0-9A-Za-z_][0-9A-Za-z.:_-]*$`)
	// ownCommand matches one of our commands as our messages quote them.
	ownCommand = regexp.MustCompile("`(postern )?(invite|join|accept|status|peer|check)[ A-Za-z-]*`")
	codeForm   = regexp.MustCompile(`^[A-Za-z]+$`)
)

// protocolVersion returns an untrusted protocol version, whose major part is known to be a number.
func protocolVersion(s string) string {
	if v := versionForm.FindString(s); v != "" {
		return v
	}
	major, _, _ := strings.Cut(s, ".")
	return clean(major, 5)
}

// fit returns a text of at most max characters if it has the form, else nothing: the rest of a
// hostile text is useless.
func fit(s string, form *regexp.Regexp, max int) string {
	if len(s) > max || !form.MatchString(s) {
		return ""
	}
	return s
}

// sentence returns another gateway's error text for display. Ours contain no web addresses, and of
// what a shell would interpret only our own commands; a text with anything else is not shown.
func sentence(s string) string {
	if strings.ContainsAny(ownCommand.ReplaceAllString(s, ""), "/\\|`$<>&") || strings.ContainsFunc(s, unseen) {
		return ""
	}
	return clean(s, maxMessage)
}
