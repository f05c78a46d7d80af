package mcs

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// SCTP is a protocol that services may have and gateways do not support.
const SCTP api.Protocol = "SCTP"

// Bounds of one service's announcement. Each port of an endpoint is a listener at the importer.
const (
	MaxPorts = 64 // of a service
	// MaxPlaces is how many backends of a headless service are announced.
	MaxPlaces      = 256
	maxListeners   = 1024
	maxLabels      = 64
	maxAnnotations = 8 << 10 // bytes in total
	maxKey         = 253
	maxEntry       = 24 << 10 // bytes of JSON
	maxAffinity    = 24 * time.Hour
	firstYear      = 2020 // of the Multi-Cluster Services API: no export is older
)

// Offer is an exported service as it is announced to peers.
type Offer struct {
	Name    Name
	Created time.Time
	Spec    Spec
	// Spread is how many consecutive overlay ports lead to each port: more than one for session
	// affinity, where each client uses one of them by its address.
	Spread int
	// Places has one element without a hostname for ClusterSetIP, and one for each ready backend of
	// Headless.
	Places []Place
	// Idle: no backend is ready. Only of ClusterSetIP.
	Idle bool
}

// Place is where a service, or one backend of it, is reached inside the tunnel.
type Place struct {
	Hostname string
	// At are the overlay ports in the order of Spec.Ports, the first of Offer.Spread each; 0 if a
	// port is not forwarded.
	At []uint16
}

// Overlay returns the overlay ports of a place's port.
func (o *Offer) Overlay(place Place, port int) (api.Ports, bool) {
	first := place.At[port]
	return api.Ports{Protocol: o.Spec.Ports[port].Protocol, First: first, Last: first + uint16(o.Spread) - 1}, first != 0
}

// wireOffer is an offer in JSON.
type wireOffer struct {
	Name         string            `json:"name" max:"127"`
	Created      time.Time         `json:"created" max:"64"`
	Type         Type              `json:"type" max:"32"`
	Ports        []wirePort        `json:"ports,omitempty" max:"64"`
	Affinity     int               `json:"affinity,omitempty" max:"86400"` // seconds
	Policy       string            `json:"internalTrafficPolicy,omitempty" max:"63"`
	Distribution string            `json:"trafficDistribution,omitempty" max:"63"`
	Labels       map[string]string `json:"labels,omitempty" max:"64x253"`
	Annotations  map[string]string `json:"annotations,omitempty" max:"64x8192"`
	Spread       int               `json:"spread,omitempty" max:"64"`
	Places       []wirePlace       `json:"places,omitempty" max:"256"`
	Idle         bool              `json:"idle,omitempty"`
}

type wirePort struct {
	Name        string       `json:"name,omitempty" max:"63"`
	Protocol    api.Protocol `json:"protocol" max:"8"`
	Port        uint16       `json:"port"`
	AppProtocol string       `json:"appProtocol,omitempty" max:"253"`
}

type wirePlace struct {
	Hostname string   `json:"hostname,omitempty" max:"63"`
	At       []uint16 `json:"at,omitempty" max:"64x65535"`
}

// Entry is an encoded offer.
type Entry struct {
	Name string
	Text json.RawMessage
	sum  [sha256.Size]byte
}

// Encode returns the entry of an offer. The error says which bound it exceeds.
func Encode(o Offer) (*Entry, error) {
	w := wireOffer{
		Name: o.Name.String(), Created: o.Created.UTC().Truncate(time.Second), Type: o.Spec.Type,
		Policy: o.Spec.InternalTrafficPolicy, Distribution: o.Spec.TrafficDistribution,
		Labels: o.Spec.Labels, Annotations: o.Spec.Annotations, Spread: o.Spread, Idle: o.Idle,
	}
	if o.Spec.Affinity.ClientIP {
		w.Affinity = max(int(o.Spec.Affinity.Timeout/time.Second), 1)
	}
	for _, p := range o.Spec.Ports {
		w.Ports = append(w.Ports, wirePort(p))
	}
	for _, p := range o.Places {
		w.Places = append(w.Places, wirePlace(p))
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	if _, err := decode(text); err != nil {
		return nil, err
	}
	return &Entry{Name: w.Name, Text: text, sum: sha256.Sum256(text)}, nil
}

// decode parses an entry; nothing of a rejected one may be used. The error contains nothing that is
// not safe to show.
func decode(text []byte) (*Offer, error) {
	var w wireOffer
	if err := bounded.Unmarshal(text, maxEntry, &w); err != nil {
		return nil, err
	}
	namespace, name, _ := strings.Cut(w.Name, "/")
	o := &Offer{
		Name: Name{namespace, name}, Created: w.Created, Spread: max(w.Spread, 1), Idle: w.Idle,
		Spec: Spec{
			Type: w.Type, InternalTrafficPolicy: w.Policy, TrafficDistribution: w.Distribution,
			Labels: Portable(w.Labels), Annotations: Portable(w.Annotations),
		},
	}
	if w.Affinity > 0 {
		o.Spec.Affinity = Affinity{ClientIP: true, Timeout: time.Duration(w.Affinity) * time.Second}
	}
	for _, p := range w.Ports {
		o.Spec.Ports = append(o.Spec.Ports, Port(p))
	}
	for _, p := range w.Places {
		o.Places = append(o.Places, Place(p))
	}
	return o, o.check()
}

// check returns why an offer is invalid.
func (o *Offer) check() error {
	switch {
	case !isLabel(o.Name.Namespace) || !isLabel(o.Name.Name):
		return errors.New("its name is not a valid service name")
	case o.Created.Year() < firstYear || o.Created.Year() > 9999:
		return fmt.Errorf("it is not exported since %d or later", firstYear)
	case o.Spec.Type != ClusterSetIP && o.Spec.Type != Headless:
		return errors.New("its type is neither ClusterSetIP nor Headless")
	case o.Spec.Type == ClusterSetIP && len(o.Spec.Ports) == 0:
		return errors.New("it has no ports")
	case o.Spec.Affinity.Timeout > maxAffinity:
		return fmt.Errorf("its session affinity is longer than %s", maxAffinity)
	case !isWord(o.Spec.InternalTrafficPolicy) || !isWord(o.Spec.TrafficDistribution):
		return errors.New("its traffic policy is not valid")
	}
	if err := checkPorts(o.Spec.Ports); err != nil {
		return err
	}
	if err := checkMarks(o.Spec.Labels, o.Spec.Annotations); err != nil {
		return err
	}
	return o.checkPlaces()
}

// portNumber is what a service has at most one port with.
type portNumber struct {
	protocol api.Protocol
	port     uint16
}

func checkPorts(ports []Port) error {
	if len(ports) > MaxPorts {
		return fmt.Errorf("it has %d ports, more than %d", len(ports), MaxPorts)
	}
	names, numbers := map[string]bool{}, map[portNumber]bool{}
	for _, p := range ports {
		n := portNumber{p.Protocol, p.Port}
		switch {
		case p.Protocol != api.TCP && p.Protocol != api.UDP && p.Protocol != SCTP:
			return errors.New("a port has an unknown protocol")
		case p.Port == 0:
			return errors.New("a port is 0")
		case p.Name == "" && len(ports) > 1 || p.Name != "" && !isLabel(p.Name):
			return errors.New("a port name is missing or invalid")
		case names[p.Name] || numbers[n]:
			return errors.New("a port is listed twice")
		case p.AppProtocol != "" && !isQualified(p.AppProtocol):
			return errors.New("an application protocol is no name")
		}
		names[p.Name], numbers[n] = true, true
	}
	return nil
}

// tools are the domains of Kubernetes, of this program, and of tools that deploy objects. Labels and
// annotations of theirs, and of the domains below, say who owns an object and how it is handled. Such a
// tool in the importing cluster would take an import for an object of its own, and change or delete it.
var tools = []string{
	"kubernetes.io", "k8s.io", "x-k8s.io", // also app.kubernetes.io, of which Argo CD uses the instance, and kubectl's
	"postern.dev",
	"helm.sh",
	"argoproj.io",                        // Argo CD
	"fluxcd.io",                          // Flux
	"coreos.com", "operatorframework.io", // Operator Lifecycle Manager
	"k14s.io", "carvel.dev", // kapp
	"cattle.io",                                // Rancher Fleet
	"gke.io",                                   // Config Sync
	"open-cluster-management.io", "karmada.io", // which place objects in clusters
	"crossplane.io", "pulumi.com", "velero.io",
}

// Portable returns the labels or annotations of an export that imports get: those without a domain,
// which are users' own by Kubernetes' convention, and those of domains that are no tools'.
func Portable(marks map[string]string) map[string]string {
	out := maps.Clone(marks)
	maps.DeleteFunc(out, func(key, _ string) bool {
		domain, _, prefixed := strings.Cut(key, "/")
		if !prefixed {
			return strings.HasPrefix(key, "olm.") // Operator Lifecycle Manager has no domain
		}
		return slices.ContainsFunc(tools, func(t string) bool { return domain == t || strings.HasSuffix(domain, "."+t) })
	})
	if len(out) == 0 {
		return nil
	}
	return out
}

func checkMarks(labels, annotations map[string]string) error {
	size := 0
	for _, m := range []map[string]string{labels, annotations} {
		if len(m) > maxLabels {
			return fmt.Errorf("it has %d labels or annotations, more than %d", len(m), maxLabels)
		}
		for key := range m {
			if !isQualified(key) {
				return errors.New("a label or annotation key is invalid")
			}
		}
	}
	for _, value := range labels {
		if value != "" && !isName(value) {
			return errors.New("the value of a label cannot be one")
		}
	}
	for key, value := range annotations {
		size += len(key) + len(value)
		if strings.ContainsFunc(value, func(r rune) bool { return !foreign.Shown(r) && r != '\n' && r != '\t' }) {
			return errors.New("the value of an annotation has control characters")
		}
	}
	if size > maxAnnotations {
		return fmt.Errorf("its annotations have %d bytes, more than %d", size, maxAnnotations)
	}
	return nil
}

func (o *Offer) checkPlaces() error {
	hostnames := map[string]bool{}
	listeners := 0
	for _, p := range o.Places {
		switch {
		case len(p.At) != len(o.Spec.Ports):
			return errors.New("it does not say of all its ports where they are")
		case (p.Hostname == "") != (o.Spec.Type == ClusterSetIP) || p.Hostname != "" && !isLabel(p.Hostname):
			return errors.New("a place has no hostname that can be")
		case hostnames[p.Hostname]:
			return errors.New("a place is there twice")
		}
		hostnames[p.Hostname] = true
		for i, at := range p.At {
			if at == 0 {
				continue
			}
			if o.Spec.Ports[i].Protocol == SCTP || at < FirstPort || int(at)+o.Spread-1 > LastPort {
				return fmt.Errorf("a port is at %d inside the tunnel, where no services of clusters are", at)
			}
			listeners++
		}
	}
	if len(o.Places) > MaxPlaces || listeners > maxListeners {
		return fmt.Errorf("it has %d backends with %d ports, more than %d or %d", len(o.Places), listeners, MaxPlaces, maxListeners)
	}
	return nil
}

// isName reports whether s is a label's value, or a label's name without its prefix.
func isName(s string) bool {
	return s != "" && len(s) <= MaxLabel && isAlphanumeric(rune(s[0])) && isAlphanumeric(rune(s[len(s)-1])) &&
		strings.TrimFunc(s, func(r rune) bool { return isAlphanumeric(r) || r == '-' || r == '_' || r == '.' }) == ""
}

func isAlphanumeric(r rune) bool {
	return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// isQualified reports whether s is a label's name: with or without a DNS name and a slash before
// it.
func isQualified(s string) bool {
	prefix, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		return isName(s)
	}
	return len(prefix) <= maxKey && isName(name) && !slices.ContainsFunc(strings.Split(prefix, "."), func(l string) bool { return !isLabel(l) })
}

// isWord reports whether s is a word as in a Service's fields; "" is unset.
func isWord(s string) bool {
	return strings.TrimFunc(s, func(r rune) bool { return r < unicode.MaxASCII && unicode.IsLetter(r) }) == ""
}

// len returns its size in bytes of JSON, 0 for nil.
func (e *Entry) len() int {
	if e == nil {
		return 0
	}
	return len(e.Text)
}

// weight returns the maximum number of JSON values in an entry.
func (e *Entry) weight() int {
	return 1 + strings.Count(string(e.Text), ",") + strings.Count(string(e.Text), ":")/2
}
