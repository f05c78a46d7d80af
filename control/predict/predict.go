package predict

import (
	"fmt"

	"github.com/postern-dev/postern/control/api"
)

// Answer says whether a mode will work.
type Answer string

// The answers. Conditional: it works if the needs are met, about which the exposures say nothing.
const (
	Works       Answer = "works"
	Conditional Answer = "conditional"
	Fails       Answer = "fails"
)

// Kinds of path.
const (
	PathDirect = "direct"
	PathPunch  = "punch"
	PathRelay  = "relay"
	PathNone   = "none"
)

// Prediction predicts a peering (kind: Prediction).
type Prediction struct {
	Kind string `json:"kind"`
	// A and B are the clusters' names.
	A string `json:"a"`
	B string `json:"b"`
	// Modes are InBand and OutOfBand, in this order.
	Modes []Mode `json:"modes"`
}

// Mode predicts one mode.
type Mode struct {
	Mode   string `json:"mode"`
	Answer Answer `json:"answer"`
	Path   Path   `json:"path"`
	// Reasons are sentences that explain the answer.
	Reasons []string `json:"reasons"`
	// Needs are what is missing, or what the answer depends on. Without any, it works.
	Needs []Need `json:"needs"`
}

// Path is how the gateways will reach each other.
type Path struct {
	Kind string `json:"kind"`
	// Dialer is the cluster whose gateway dials; "both" if both can or must.
	Dialer string `json:"dialer,omitempty"`
	// Address is where it dials, if known.
	Address string `json:"address,omitempty"`
}

// Need is what one service of one cluster lacks, and its fix.
type Need struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"` // gateway, auth or apiServer
	Lacks   string `json:"lacks"`
	Fix     string `json:"fix"`
	// Answer is Fails if the mode cannot work without the fix, Conditional if it may work.
	Answer Answer `json:"answer"`
}

// Both is the dialer if either gateway can dial, or both must at the same time.
const Both = "both"

// Predict predicts a peering of two clusters.
func Predict(a, b Exposure) Prediction {
	inBand := predictGateways(a, b)
	outOfBand := Mode{Mode: api.ModeOutOfBand, Path: inBand.Path, Reasons: append([]string{}, inBand.Reasons...), Needs: append([]Need{}, inBand.Needs...)}
	near := sameLAN(a, b)
	for _, pair := range [][2]Exposure{{a, b}, {b, a}} {
		x, other := pair[0], pair[1]
		outOfBand.service(x, api.ServiceAuth, auth(x, other.Name, near))
		outOfBand.service(x, api.ServiceAPIServer, apiServer(x, other.Name, near))
	}
	inBand.Reasons = append(inBand.Reasons, "auth and API servers are carried through the tunnel: they need no exposure, and no Ingress is in the way")
	inBand.settle()
	outOfBand.settle()
	return Prediction{Kind: "Prediction", A: a.Name, B: b.Name, Modes: []Mode{inBand, outOfBand}}
}

// Mode returns the prediction for one mode.
func (p Prediction) Mode(name string) Mode {
	for _, m := range p.Modes {
		if m.Mode == name {
			return m
		}
	}
	return Mode{Mode: name}
}

// settle determines the answer from the needs.
func (m *Mode) settle() {
	m.Answer = Works
	for _, n := range m.Needs {
		if n.Answer == Fails || m.Answer == Works {
			m.Answer = n.Answer
		}
	}
	if m.Needs == nil {
		m.Needs = []Need{}
	}
}

func (m *Mode) because(format string, args ...any) {
	m.Reasons = append(m.Reasons, fmt.Sprintf(format, args...))
}

func (m *Mode) need(answer Answer, cluster, service, lacks, fix string) {
	m.Needs = append(m.Needs, Need{Cluster: cluster, Service: service, Lacks: lacks, Fix: fix, Answer: answer})
}

// service adds what is known about one service out-of-band.
func (m *Mode) service(x Exposure, service string, r reach) {
	if r.reason != "" {
		m.because("%s of %s %s", service, x.Name, r.reason)
	}
	if r.lacks != "" {
		m.need(r.answer, x.Name, service, r.lacks, r.fix)
	}
}

func sameLAN(a, b Exposure) bool { return a.LAN != "" && a.LAN == b.LAN }
