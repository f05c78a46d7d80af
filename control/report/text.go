package report

import (
	"regexp"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

var (
	codeForm    = regexp.MustCompile(`^PST[0-9]{4}$`)
	versionForm = regexp.MustCompile(`^[0-9]{1,5}\.[0-9]{1,5}$`)
)

// code returns c if it has the form of a code, else "".
func code(c catalogue.Code) catalogue.Code {
	if !codeForm.MatchString(string(c)) {
		return ""
	}
	return c
}

func isVersion(s string) bool { return versionForm.MatchString(s) }

// outcome returns o if it is a known outcome, else unknown.
func outcome(o api.Outcome) api.Outcome {
	switch o {
	case api.OK, api.Warning, api.Error, api.Off:
		return o
	}
	return api.Unknown
}

// stage returns s if it is a stage that this version knows, else "".
func stage(s string) string {
	switch s {
	case "dns", "tcp", "tls", "http", "auth", "resolve", "probe", "handshake", "ping", "mtu":
		return s
	}
	return ""
}

// targets are the targets of verdicts, in the order of their dependence.
var targets = []string{api.ServiceGateway, api.ServiceAuth, api.ServiceAPIServer}
