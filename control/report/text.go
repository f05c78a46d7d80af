package report

import (
	"regexp"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
)

// unfit stands for a text that holds what no such text needs. The text is replaced as a
// whole: what is left of a hostile one is no use to anybody, and may still read as a
// command.
const unfit = "?"

// alphabet tells the characters that a text may hold.
type alphabet func(c byte) bool

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// host is for DNS names, wildcards and IP addresses in certificates.
func host(c byte) bool {
	return alphanumeric(c) || c == '.' || c == ':' || c == '*' || c == '_' || c == '-'
}

// authority is for the common name of one: k3s has an @ in its own. There is no blank in it,
// since with one a name can be a sentence.
func authority(c byte) bool { return host(c) || c == '@' }

// fit gives a text if it is short and of its alphabet. One that begins with a hyphen
// could be taken for an option.
func fit(s string, in alphabet) string {
	if len(s) > maxText || s != "" && s[0] == '-' {
		return unfit
	}
	for i := range len(s) {
		if !in(s[i]) {
			return unfit
		}
	}
	return s
}

var (
	codeForm    = regexp.MustCompile(`^PST[0-9]{4}$`)
	versionForm = regexp.MustCompile(`^[0-9]{1,5}\.[0-9]{1,5}$`)
)

// code is a code by its form, empty for what is none.
func code(c check.Code) check.Code {
	if !codeForm.MatchString(string(c)) {
		return ""
	}
	return c
}

// version is one by its form, empty for what is none.
func version(s string) string {
	if !isVersion(s) {
		return ""
	}
	return s
}

func isVersion(s string) bool { return versionForm.MatchString(s) }

// outcome is one of the words for it.
func outcome(o api.Outcome) api.Outcome {
	switch o {
	case api.OK, api.Warning, api.Error, api.Off:
		return o
	}
	return api.Unknown
}

// stage is one of the stages that this version knows, else empty.
func stage(s string) string {
	switch s {
	case "dns", "tcp", "tls", "http", "auth", "resolve", "probe", "handshake", "ping", "mtu":
		return s
	}
	return ""
}

// behaviour is a word of RFC 4787 for a NAT, or unknown.
func behaviour(s string) string {
	switch s {
	case "none", "endpoint-independent", "address-dependent", "address-and-port-dependent", "endpoint-dependent":
		return s
	}
	return "unknown"
}

// source is one of the sources of candidates, else empty.
func source(s string) string {
	switch s {
	case api.SourceAdvertised, api.SourceService, api.SourcePortmap, api.SourceLAN, api.SourceDNS,
		api.SourceHost, api.SourceSTUN, api.SourcePeer, api.SourceRelay:
		return s
	}
	return ""
}

// state is one of those of a candidate, as package path names them, else empty.
func state(s string) string {
	switch s {
	case "frozen", "probing", "valid", "selected", "suspect", "failed":
		return s
	}
	return ""
}

func failure(f check.Failure) check.Failure {
	switch f {
	case check.FailureName, check.FailureRefused, check.FailureTimeout, check.FailureRoute, check.FailureURL,
		check.FailureMissing, check.FailureExpired:
		return f
	}
	return ""
}

func beside(b check.Beside) check.Beside {
	if b == check.BesideWorks || b == check.BesideFails {
		return b
	}
	return ""
}

func isTarget(s string) bool {
	return s == api.ServiceGateway || s == api.ServiceAuth || s == api.ServiceAPIServer
}
