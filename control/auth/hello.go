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
	// maxOffers bounds the services that a peer can offer; the rest are ignored.
	maxOffers = 256
	// maxSoftware and maxServerName (RFC 1035 §2.3.4) bound texts, in characters.
	maxSoftware   = 80
	maxServerName = 253
)

// Hello is a gateway's introduction to a peer.
type Hello struct {
	Version string `json:"version" max:"64"`
	// Software is the build, for display.
	Software string `json:"software,omitempty" max:"1024"`
	// Name is the gateway's own name.
	Name         string   `json:"name" max:"64"`
	Capabilities []string `json:"capabilities" max:"1024x256"`
	// Offers are the services that the caller may reach there.
	Offers []string `json:"offers" max:"1024x256"`
	// Ports are the overlay TCP ports of the named services among Offers, the first of several;
	// auth and apiServer have fixed ones.
	Ports map[string]uint16 `json:"ports,omitempty" max:"1024x256"`
	// Ranges are those of services with UDP ports, or several, in the format of [api.ParsePorts].
	// UDP ports are not in Ports: older gateways would take them for TCP.
	Ranges map[string]string `json:"ranges,omitempty" max:"1024x256"`
	// Pending: the caller's key has yet to be approved there.
	Pending bool `json:"pending,omitempty"`
	// APIServer is sent to those who may reach it.
	APIServer *APIServer `json:"apiServer,omitempty"`
	// Report is what the gateway found when it tried to reach the caller (package report). It is
	// part of the hello because that is sent every few minutes anyway: a separate connection would
	// cost five times the bytes.
	Report json.RawMessage `json:"report,omitempty" max:"196608"`
	// HeardBoot is the number of the latest start with the caller's key that the gateway has heard
	// and that has not ended; 0 for none. A number higher than the caller's own means another gateway
	// with its key.
	HeardBoot uint64 `json:"heardBoot,omitempty"`
}

// APIServer is what is needed to talk to an API server through the tunnel.
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

// ParseHello parses a hello and makes it safe to show and to store: texts are sanitised and
// bounded, invalid service names are dropped, and only the certificates of caData are kept. A
// report of acceptable length is kept as it is: package report parses it. With an [ErrIncompatible]
// only the version is returned.
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
		h.Report = nil // not worth losing the rest
	}
	return h, nil
}

// keepServices keeps the valid offers and their ports.
func (h *Hello) keepServices() {
	told := *h
	h.Offers, h.Ports, h.Ranges = services(told.Offers), nil, nil
	for _, s := range h.Offers {
		if p, ok := told.PortsOf(s); ok {
			h.SetPorts(s, p)
		}
	}
}

// services returns the valid offers without duplicates.
func services(offers []string) []string {
	out := make([]string, 0, min(len(offers), maxOffers))
	for _, s := range offers {
		if canBeService(s) && !slices.Contains(out, s) && len(out) < maxOffers {
			out = append(out, s)
		}
	}
	return out
}

// SetPorts sets the ports of a service.
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

// PortsOf returns the ports of a named service, if known. A range in a newer gateway's format is
// not.
func (h Hello) PortsOf(service string) (api.Ports, bool) {
	if text, ok := h.Ranges[service]; ok {
		p, err := api.ParsePorts(text)
		return p, err == nil && p.First != 0
	}
	port := h.Ports[service]
	return api.PortsOf(port), port != 0
}

// clean makes an untrusted API server description safe to store; a may be nil.
func (a *APIServer) clean() error {
	if a == nil {
		return nil
	}
	a.ServerName = fit(a.ServerName, serverNameForm, maxServerName) // without one the default is used
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

// onlyCertificates returns the certificates of a PEM text, without headers and anything else.
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
