package auth

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/tunnel/foreign"
)

const (
	// maxOffers bounds the services that a peer can offer; what is beyond is not seen.
	maxOffers = 256
	// maxSoftware and maxServerName (RFC 1035 §2.3.4) bound texts, in characters.
	maxSoftware   = 80
	maxServerName = 253
)

// Hello is what a gateway tells a peer first.
type Hello struct {
	Version string `json:"version" max:"64"`
	// Software is the build, for people.
	Software string `json:"software,omitempty" max:"1024"`
	// Name is what the gateway calls itself.
	Name         string   `json:"name" max:"64"`
	Capabilities []string `json:"capabilities" max:"1024x256"`
	// Offers are the services that the caller may reach there.
	Offers []string `json:"offers" max:"1024x256"`
	// Ports are the overlay TCP ports of the named services among Offers, the first of
	// several; auth and apiServer have fixed ones.
	Ports map[string]uint16 `json:"ports,omitempty" max:"1024x256"`
	// Ranges are those of the services that have UDP ports, or several, as [api.ParsePorts]
	// reads them. Those of UDP are not in Ports: older gateways would take them for TCP.
	Ranges map[string]string `json:"ranges,omitempty" max:"1024x256"`
	// Pending: the caller's key has yet to be approved there.
	Pending bool `json:"pending,omitempty"`
	// APIServer is told to those who may reach it.
	APIServer *APIServer `json:"apiServer,omitempty"`
	// Report is what the gateway found when it tried to reach the caller (package report).
	// It rides on the hello because that is asked for every few minutes anyway: a
	// connection of its own would cost five times its bytes.
	Report json.RawMessage `json:"report,omitempty" max:"196608"`
	// HeardBoot is the highest number of a start that the gateway has heard of the caller's
	// key; 0 is none. One that is higher than the caller's own is another gateway with its key.
	HeardBoot uint64 `json:"heardBoot,omitempty"`
}

// APIServer is what it takes to talk to an API server through the tunnel.
type APIServer struct {
	// ServerName is the name in its certificate.
	ServerName string `json:"serverName,omitempty" max:"1024"`
	// CAData are the PEM certificates that signed it.
	CAData string `json:"caData,omitempty" max:"131072"`
}

// Can reports whether the gateway has a capability.
func (h Hello) Can(capability string) bool { return slices.Contains(h.Capabilities, capability) }

// Grants reports whether the caller may reach a service there.
func (h Hello) Grants(service string) bool { return slices.Contains(h.Offers, service) }

// ParseHello reads a hello and makes it safe to show and to keep: texts are cleaned and
// bounded, what cannot be the name of a service is dropped, and of caData the certificates
// stay. A report is left as it came, if it is not too long: package report reads it. With an [ErrIncompatible] the version is given, and nothing else.
func ParseHello(body []byte) (Hello, error) {
	var h Hello
	if err := bounded.Unmarshal(body, helloAnswer, &h); err != nil {
		return Hello{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	switch err := checkAnswerVersion(h.Version); {
	case errors.Is(err, ErrIncompatible):
		return Hello{Version: protocolVersion(h.Version)}, err
	case err != nil:
		return Hello{}, err
	}
	if err := api.CheckName(h.Name); err != nil {
		return Hello{}, fmt.Errorf("%w: the gateway's %w", ErrAnswer, foreign.Err(err))
	}
	h.Version, h.Software = protocolVersion(h.Version), fit(h.Software, softwareForm, maxSoftware)
	h.Capabilities = h.Capabilities[:min(len(h.Capabilities), maxOffers)]
	for i := range h.Capabilities {
		h.Capabilities[i] = clean(h.Capabilities[i], api.MaxNameLength)
	}
	h.keepServices()
	if err := h.APIServer.clean(); err != nil {
		return Hello{}, err
	}
	if len(h.Report) > MaxReport {
		h.Report = nil // it is not worth losing the rest
	}
	return h, nil
}

// keepServices keeps the offers that can be services, and the ports of those.
func (h *Hello) keepServices() {
	told := *h
	h.Offers, h.Ports, h.Ranges = services(told.Offers), nil, nil
	for _, s := range h.Offers {
		if p, ok := told.PortsOf(s); ok {
			h.SetPorts(s, p)
		}
	}
}

// services are the offers that can be services, each once.
func services(offers []string) []string {
	out := make([]string, 0, min(len(offers), maxOffers))
	for _, s := range offers {
		if canBeService(s) && !slices.Contains(out, s) && len(out) < maxOffers {
			out = append(out, s)
		}
	}
	return out
}

// SetPorts says at which ports a service is.
func (h *Hello) SetPorts(service string, p api.Ports) {
	if p.Protocol != api.UDP {
		if h.Ports == nil {
			h.Ports = map[string]uint16{}
		}
		h.Ports[service] = p.First
	}
	if !p.Plain() {
		if h.Ranges == nil {
			h.Ranges = map[string]string{}
		}
		h.Ranges[service] = p.String()
	}
}

// PortsOf are the ports of a named service, if they are known. A range that a newer gateway wrote
// in another way is not.
func (h Hello) PortsOf(service string) (api.Ports, bool) {
	if text, ok := h.Ranges[service]; ok {
		p, err := api.ParsePorts(text)
		return p, err == nil && p.First != 0
	}
	port := h.Ports[service]
	return api.PortsOf(port), port != 0
}

// clean makes what a stranger says of its API server fit to be kept; a may be nil.
func (a *APIServer) clean() error {
	if a == nil {
		return nil
	}
	a.ServerName = fit(a.ServerName, serverNameForm, maxServerName) // without one the usual is taken
	if len(a.CAData) > api.MaxCAData {
		return fmt.Errorf("%w: caData of %d bytes, and at most %d are taken", ErrAnswer, len(a.CAData), api.MaxCAData)
	}
	certificates := onlyCertificates([]byte(a.CAData))
	if len(certificates) == 0 && a.CAData != "" {
		return fmt.Errorf("%w: caData holds no PEM certificate", ErrAnswer)
	}
	a.CAData = string(certificates)
	return nil
}

// onlyCertificates are the certificates of a PEM text, without headers and whatever else
// is in it.
func onlyCertificates(text []byte) []byte {
	var out bytes.Buffer
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out.Bytes()
		}
		if block.Type == "CERTIFICATE" {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
		}
	}
}
