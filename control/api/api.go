// Package api holds postern's versioned documents: the Gateway configuration, the Status of a
// running gateway, and the requests and responses of its admin socket. They are plain data. Package
// config reads the configuration, checks it and sets defaults.
//
// The JSON of Status is stable: fields are added, never renamed, and readers ignore unknown ones.
//
// # Files
//
//   - api.go: names, labels and durations
//   - gateway.go: the configuration file
//   - status.go: the status
//   - check.go: checks, the log, alarms
//   - netcheck.go: the network around a gateway
//   - history.go: history
//   - services.go: cluster services
//   - discovered.go: discovered gateways
//   - admin.go: requests and answers of commands
//   - ports.go: ports and listeners' addresses
//   - steps.go: the steps of a fix
//   - limits.go: lengths of names
package api

import (
	"fmt"
	"regexp"
	"time"
)

// Version is the apiVersion of every document here.
const Version = "postern.dev/v1alpha1"

// Names of the services that every gateway can offer inside the tunnel.
const (
	ServiceAuth      = "auth"
	ServiceAPIServer = "apiServer"
	// ServiceGateway is the tunnel itself, a target of checks but not of grants.
	ServiceGateway = "gateway"
)

// Overlay TCP ports of the two services (docs/protocol.md, "Keys and overlay addresses").
const (
	PortAuth      uint16 = 80
	PortAPIServer uint16 = 6443
)

// MaxNameLength bounds the names of gateways and peers, so that names derived from
// them (Services, Secrets) still fit a DNS label of 63.
const MaxNameLength = 40

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// CheckName returns why s is not a valid name for a gateway, peer or named service, or nil.
func CheckName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("name is empty")
	case len(s) > MaxNameLength:
		return fmt.Errorf("name %.20q… is longer than %d characters", s, MaxNameLength)
	case !dnsLabel.MatchString(s):
		return fmt.Errorf("name %q is not a DNS label (lower-case letters, digits and inner hyphens)", s)
	}
	return nil
}

// MaxLabels bounds the labels of a peer.
const MaxLabels = 32

var (
	labelName  = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)
)

// CheckLabel returns why a name and value are not a valid Kubernetes label, or nil.
func CheckLabel(name, value string) error {
	switch {
	case !labelName.MatchString(name):
		return fmt.Errorf("%.80q is no name of a label (such as region, or example.com/region; at most 63 characters behind the slash)", name)
	case !labelValue.MatchString(value):
		return fmt.Errorf("%.80q is no value of a label (letters, digits and inner hyphens, dots and underscores; at most 63)", value)
	}
	return nil
}

// Duration is a time.Duration that documents write as "1h30m".
type Duration time.Duration

// MarshalText writes the form of time.Duration.String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(t []byte) error {
	v, err := time.ParseDuration(string(t))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 90s or 24h", t)
	}
	*d = Duration(v)
	return nil
}
