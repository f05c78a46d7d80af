package report

import (
	"regexp"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// Forms of texts in reports. A text that has another is "?" as a whole.
var (
	host      = foreign.Host.Most(maxText)
	authority = foreign.Authority.Most(maxText)
)

var (
	codeForm    = regexp.MustCompile(`^PST[0-9]{4}$`)
	versionForm = regexp.MustCompile(`^[0-9]{1,5}\.[0-9]{1,5}$`)
)

// code is a code by its form, empty for what is none.
func code(c catalogue.Code) catalogue.Code {
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

func failure(f catalogue.Failure) catalogue.Failure {
	switch f {
	case catalogue.FailureName, catalogue.FailureRefused, catalogue.FailureTimeout, catalogue.FailureRoute, catalogue.FailureURL,
		catalogue.FailureMissing, catalogue.FailureExpired:
		return f
	}
	return ""
}

func beside(b catalogue.Beside) catalogue.Beside {
	if b == catalogue.BesideWorks || b == catalogue.BesideFails {
		return b
	}
	return ""
}

func isTarget(s string) bool {
	return s == api.ServiceGateway || s == api.ServiceAuth || s == api.ServiceAPIServer
}
