package peers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/events"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// Reasons of events other than those of codes.
const (
	noteConnected = "Connected"
	noteLost      = "Lost"
	noteIdentity  = "IdentityIssued"
	noteCleared   = "Cleared"
)

// heard reports whether a peer is connected, even if unconfirmed: that may be over in a moment.
func heard(s v1alpha1.PeerStatus) bool {
	return s.State == string(api.StateConnected) || s.State == string(api.StateUnconfirmed)
}

// held returns a status as events tell it. What was told of a fault stays while the check comes and
// goes, or is unknown because of another fault.
func held(was, is v1alpha1.PeerStatus) v1alpha1.PeerStatus {
	is.Conditions = slices.Clone(is.Conditions)
	for i, x := range is.Conditions {
		w, comesAndGoes := conditionOf(was, x.Type), codeOf(x) == string(catalogue.Intermittent)
		if !coded(w) || !comesAndGoes && (coded(x) || x.Status != metav1.ConditionUnknown) {
			continue
		}
		is.Conditions[i] = w
		if comesAndGoes && x.Type == v1alpha1.TunnelReady {
			is.State = was.State
		}
	}
	return is
}

// notes returns the events for a change of a status: new problems that an operator should know,
// and the end of earlier ones.
func notes(was, is v1alpha1.PeerStatus) []events.Event {
	var out []events.Event
	connected := heard(is)
	tunnelTold := false
	switch before := heard(was); {
	case connected && !before:
		tunnelTold = true
		out = append(out, events.Event{Type: events.Normal, Reason: noteConnected, Message: "the gateways hear each other: " + pathText(is)})
	case !connected && before && is.State != v1alpha1.StateRefused:
		tunnelTold = true
		text := "the peer is not heard any more"
		if t := conditionOf(is, v1alpha1.TunnelReady); t.Message != "" {
			text += "; " + t.Message
		}
		out = append(out, events.Event{Type: events.Warning, Reason: noteLost, Message: text})
	}
	for _, x := range is.Conditions {
		switch x.Type {
		case v1alpha1.Accepted, v1alpha1.Ready, v1alpha1.Stalled: // these summarise the others
			continue
		}
		w := conditionOf(was, x.Type)
		if w.Reason == x.Reason && w.Status == x.Status || x.Type == v1alpha1.TunnelReady && tunnelTold && !coded(x) && !coded(w) {
			continue
		}
		lost := x.Type == v1alpha1.TunnelReady && tunnelTold && !connected
		switch {
		case coded(x) && x.Type == v1alpha1.IdentityIssued &&
			(codeOf(x) == codeOf(conditionOf(is, v1alpha1.AuthReachable)) || codeOf(x) == codeOf(conditionOf(is, v1alpha1.APIServerReachable))):
			// reported as the service's
		case coded(x) && !lost && codeOf(x) != codeOf(w):
			out = append(out, events.Event{Type: events.Warning, Reason: x.Reason, Message: x.Message})
		case coded(w) && x.Status == metav1.ConditionTrue && !coded(x) && x.Type != v1alpha1.IdentityIssued:
			out = append(out, events.Event{Type: events.Normal, Reason: noteCleared, Message: fmt.Sprintf("%s is over: %s", codeOf(w), x.Message)})
		}
	}
	if was.Identity == nil && is.Identity != nil && is.Identity.NotAfter != nil {
		out = append(out, events.Event{Type: events.Normal, Reason: noteIdentity,
			Message: "the peer has issued an identity to us, valid until " + is.Identity.NotAfter.UTC().Format(time.RFC3339) + " and renewed before"})
	}
	return out
}

func pathText(s v1alpha1.PeerStatus) string {
	p := pathOf(s)
	text := p.Kind + " path"
	if p.Remote != "" {
		text += " to " + p.Remote
	}
	if s.RTT != "" {
		text += ", " + s.RTT
	}
	return text
}

func conditionOf(s v1alpha1.PeerStatus, kind string) metav1.Condition {
	for _, x := range s.Conditions {
		if x.Type == kind {
			return x
		}
	}
	return metav1.Condition{}
}

// codeOf returns the PST code at the beginning of a condition's message; empty if there is none.
func codeOf(x metav1.Condition) string {
	code, _, ok := strings.Cut(x.Message, ": ")
	if !ok || !strings.HasPrefix(code, "PST") {
		return ""
	}
	return code
}

func coded(x metav1.Condition) bool { return codeOf(x) != "" }
