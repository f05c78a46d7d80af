package auth

import (
	"regexp"
	"strings"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// clean makes a stranger's text fit to be shown, in at most max characters.
func clean(s string, max int) string { return strings.TrimSpace(foreign.Of(s).Cut(max)) }

// unseen reports whether a character does something to a terminal or a line instead of
// being seen in it.
func unseen(r rune) bool { return !foreign.Shown(r) }

var (
	// versionForm is how a version of the protocol begins; what follows is not looked at.
	versionForm = regexp.MustCompile(`^[0-9]{1,5}\.[0-9]{1,5}`)
	// softwareForm is that of a build's version.
	softwareForm = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z.+_ -]*[0-9A-Za-z.+_-])?$`)
	// serverNameForm is that of a name or address in a certificate. The name goes into a
	// kubeconfig and into what operators are told to paste.
	serverNameForm = regexp.MustCompile(`^[0-9A-Za-z_][0-9A-Za-z.:_-]*$`)
	// ownCommand is one of ours as our messages quote them.
	ownCommand = regexp.MustCompile("`(postern )?(invite|join|accept|status|peer|check)[ A-Za-z-]*`")
	codeForm   = regexp.MustCompile(`^[A-Za-z]+$`)
)

// protocolVersion is what a stranger calls the version of its protocol, of which the major
// one is known to be a number.
func protocolVersion(s string) string {
	if v := versionForm.FindString(s); v != "" {
		return v
	}
	major, _, _ := strings.Cut(s, ".")
	return clean(major, 5)
}

// fit gives a text of at most max characters if it has the form, and else nothing: what is
// left of a hostile one is no use to anybody.
func fit(s string, form *regexp.Regexp, max int) string {
	if len(s) > max || !form.MatchString(s) {
		return ""
	}
	return s
}

// sentence is what another gateway's error says, for people. Ours have no addresses of the
// web in them, and of what a shell would act on no more than commands of ours; a text with
// anything else is not shown.
func sentence(s string) string {
	if strings.ContainsAny(ownCommand.ReplaceAllString(s, ""), "/\\|`$<>&") || strings.ContainsFunc(s, unseen) {
		return ""
	}
	return clean(s, maxMessage)
}
