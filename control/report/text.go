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

// code is a code by its form, empty for what is none.
func code(c catalogue.Code) catalogue.Code {
	if !codeForm.MatchString(string(c)) {
		return ""
	}
	return c
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

// targets are what verdicts are about, in the order in which one needs the other.
var targets = []string{api.ServiceGateway, api.ServiceAuth, api.ServiceAPIServer}
