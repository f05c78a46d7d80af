package peers

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// Reasons of conditions other than those of codes.
const (
	reasonReady      = "Ready"
	reasonAccepted   = "Accepted"
	reasonTaking     = "Pending" // also the default in the definitions
	reasonNotChecked = "NotChecked"
	reasonNotOffered = "NotOffered"
	reasonIssued     = "Issued"
	reasonPending    = "WaitsForApproval"
	reasonConnecting = "Connecting"
	// reasonUnconfirmed: the peer was heard recently, but current requests have no answer.
	reasonUnconfirmed = "Unconfirmed"
	reasonStopped     = "GatewayStopped"
)

// statusOf returns an object's status. s is the gateway's view of the peer; nil if the gateway
// does not have it. before is the previous status, for the times of its conditions.
func statusOf(c *candidate, s *api.PeerStatus, before v1alpha1.PeerStatus, now time.Time) v1alpha1.PeerStatus {
	out := v1alpha1.PeerStatus{ObservedGeneration: c.object.Generation, LastSeen: before.LastSeen}
	accepted := metav1.Condition{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: reasonAccepted, Message: "the gateway has taken it"}
	var list []metav1.Condition
	switch {
	case c.refused != nil:
		out.State, out.Code = v1alpha1.StateRefused, string(c.refused.code)
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, reasonOf(c.refused.code), c.refused.text()
		list = unknownAfter(as(v1alpha1.TunnelReady, accepted))
		stalled := as(v1alpha1.Stalled, accepted)
		stalled.Status = metav1.ConditionTrue
		list = append(list, stalled)
	case s == nil || s.State == api.StatePending:
		out.State = string(api.StatePending)
		tunnel := pendingCondition(c, s)
		accepted = as(v1alpha1.Accepted, tunnel)
		if tunnel.Reason != reasonPending {
			accepted.Status, accepted.Reason = metav1.ConditionUnknown, reasonTaking
		}
		list = unknownAfter(tunnel)
	default:
		list = fill(&out, s)
		if c.noted != nil && out.Code == "" {
			out.Code = string(c.noted.code)
		}
	}
	if s != nil {
		out.Address = s.Address
		if s.LastHandshake != nil { // otherwise there was none in this run
			out.LastSeen = seconds(s.LastHandshake)
		}
	}
	list = append([]metav1.Condition{accepted, ready(accepted, list, out)}, list...)
	for _, x := range list {
		x.ObservedGeneration = c.object.Generation
		x.LastTransitionTime = metav1.NewTime(now)
		if c.noted != nil && c.refused == nil && (x.Type == v1alpha1.Accepted || x.Type == v1alpha1.TunnelReady) {
			x.Message += "; " + c.noted.text()
		}
		out.Conditions = append(out.Conditions, objects.Since(before.Conditions, x))
	}
	return out
}

// as returns a condition of another type with the same contents.
func as(kind string, x metav1.Condition) metav1.Condition {
	x.Type = kind
	return x
}

// seconds returns a time in the format of objects; nil for nil.
func seconds(t *time.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	at := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &at
}

// ready summarises the use of a peer: the first condition that fails, or else the first that is
// unknown. A service that the peer does not offer to us is not used.
func ready(accepted metav1.Condition, list []metav1.Condition, is v1alpha1.PeerStatus) metav1.Condition {
	used := []metav1.Condition{accepted}
	for _, x := range list {
		switch {
		case x.Type == v1alpha1.TunnelReady,
			x.Type == v1alpha1.AuthReachable && is.Auth != string(api.Off),
			x.Type == v1alpha1.APIServerReachable && is.APIServer != string(api.Off):
			used = append(used, x)
		}
	}
	for _, bad := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown} {
		if i := slices.IndexFunc(used, func(x metav1.Condition) bool { return x.Status == bad }); i >= 0 {
			return as(v1alpha1.Ready, used[i])
		}
	}
	return metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: reasonReady, Message: "the peer is reachable, and so is what it offers"}
}

// fill fills in what the gateway knows of a peer, and returns its conditions.
func fill(out *v1alpha1.PeerStatus, s *api.PeerStatus) []metav1.Condition {
	to := confirmed(s)
	out.State = string(s.Shown())
	out.Path = &v1alpha1.PeerPath{Kind: s.Path.Kind, Remote: s.Path.Remote}
	out.User = s.User
	out.RTT = rttText(s.Path.RTTSeconds)
	out.Auth, out.APIServer = string(to.Auth.Verdict), string(to.APIServer.Verdict)
	for _, v := range []api.Verdict{to.Gateway, to.Auth, to.APIServer} {
		if v.Code != "" && (v.Verdict == api.Error || v.Verdict == api.Warning) {
			out.Code = v.Code
			break
		}
	}
	if s.Identity != nil {
		out.Identity = &v1alpha1.PeerIdentity{User: s.Identity.User, NotAfter: seconds(&s.Identity.NotAfter)}
	}
	return []metav1.Condition{
		tunnelCondition(s), serviceCondition(v1alpha1.AuthReachable, api.ServiceAuth, to.Auth),
		serviceCondition(v1alpha1.APIServerReachable, api.ServiceAPIServer, to.APIServer), identityCondition(s),
	}
}

// confirmed returns what works at the peer, as far as that is still known.
func confirmed(s *api.PeerStatus) api.Targets {
	to := s.Reachability.Outbound
	if s.Shown() != api.StateUnconfirmed {
		return to
	}
	for _, v := range []*api.Verdict{&to.Auth, &to.APIServer, &to.Gateway} {
		if v.Verdict == api.OK || v.Code == string(catalogue.Intermittent) {
			*v = api.Verdict{Verdict: api.Unknown, Cause: "it worked until the peer fell silent"}
		}
	}
	return to
}

// tunnelCondition is true while the peer is connected and confirmed, and no check has found that
// nothing gets through, even if there is something else to fix.
func tunnelCondition(s *api.PeerStatus) metav1.Condition {
	v := s.Reachability.Outbound.Gateway
	x := metav1.Condition{Type: v1alpha1.TunnelReady, Status: metav1.ConditionTrue, Reason: reasonReady, Message: "the gateways hear each other: " + way(s)}
	switch s.Shown() {
	case api.StateConnected:
	case api.StateUnconfirmed:
		x.Status, x.Reason, x.Message = metav1.ConditionUnknown, reasonUnconfirmed, "the peer does not answer at the moment"
	default:
		x.Status, x.Reason, x.Message = metav1.ConditionFalse, reasonConnecting, s.Reason
		if x.Message == "" {
			x.Message = "the peer has not answered yet"
		}
	}
	stale := x.Status != metav1.ConditionTrue && v.Code == string(catalogue.Intermittent) // it worked before
	if v.Code != "" && (v.Verdict == api.Error || v.Verdict == api.Warning) && !stale {
		x.Reason, x.Message = reasonOf(catalogue.Code(v.Code)), message(v.Code, v.Cause, v.Fix)
	}
	switch { // a check may find that nothing gets through before the state changes
	case v.Verdict != api.Error || x.Status == metav1.ConditionFalse:
	case v.Confidence == api.Tentative:
		x.Status = metav1.ConditionUnknown
	default:
		x.Status = metav1.ConditionFalse
	}
	return x
}

// way describes the path in use.
func way(s *api.PeerStatus) string {
	text := s.Path.Kind + " path"
	if s.Path.Remote != "" {
		text += " to " + s.Path.Remote
	}
	return text
}

// serviceCondition converts a verdict to a condition. It is true if the service works, even
// imperfectly.
func serviceCondition(kind, service string, v api.Verdict) metav1.Condition {
	x := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: reasonNotChecked, Message: message(v.Code, v.Cause, v.Fix)}
	if v.Code != "" {
		x.Reason = reasonOf(catalogue.Code(v.Code))
	}
	switch v.Verdict {
	case api.OK:
		x.Status, x.Reason, x.Message = metav1.ConditionTrue, reasonReady, "the peer's "+service+" answers"
	case api.Warning:
		x.Status = metav1.ConditionTrue
	case api.Error:
		x.Status = metav1.ConditionFalse
	case api.Off:
		x.Status = metav1.ConditionFalse
		if v.Code == "" {
			x.Reason = reasonNotOffered
		}
	}
	if x.Message == "" {
		x.Message = service + " has not been checked yet"
		if v.Verdict == api.Off {
			x.Message = "the peer does not offer " + service + " to us"
		}
	}
	return x
}

func identityCondition(s *api.PeerStatus) metav1.Condition {
	x := metav1.Condition{Type: v1alpha1.IdentityIssued, Status: metav1.ConditionFalse, Reason: reasonNotOffered, Message: "the peer has issued no identity to us"}
	auth, used := s.Reachability.Outbound.Auth, s.Reachability.Outbound.APIServer
	switch {
	case s.Identity != nil && rejectsIdentity(used):
		x.Reason, x.Message = reasonOf(catalogue.Code(used.Code)), message(used.Code, used.Cause, used.Fix)
	case s.Identity != nil:
		x.Status, x.Reason, x.Message = metav1.ConditionTrue, reasonIssued, "an identity of the peer is held, and is renewed before it ends"
	case auth.Code != "" && auth.Verdict != api.OK:
		x.Reason, x.Message = reasonOf(catalogue.Code(auth.Code)), message(auth.Code, auth.Cause, auth.Fix)
	case auth.Verdict == api.Unknown || auth.Verdict == "":
		x.Status, x.Reason = metav1.ConditionUnknown, reasonNotChecked
	}
	return x
}

// rejectsIdentity reports whether the peer's API server rejects the identity, which is then
// useless.
func rejectsIdentity(apiServer api.Verdict) bool {
	switch catalogue.Code(apiServer.Code) {
	case catalogue.APIServerUnauthorized, catalogue.IdentityRejected, catalogue.IdentityExpired:
		return apiServer.Verdict == api.Error
	}
	return false
}

// pendingCondition is that of a peer that is not approved yet, or that the gateway has not
// accepted yet.
func pendingCondition(c *candidate, s *api.PeerStatus) metav1.Condition {
	x := metav1.Condition{Type: v1alpha1.TunnelReady, Status: metav1.ConditionFalse, Reason: reasonConnecting, Message: "the gateway is about to take the peer"}
	if c.object.Spec.Pending || s != nil {
		fingerprint := ""
		if s != nil && s.ApprovalFingerprint != "" {
			fingerprint = " (fingerprint " + s.ApprovalFingerprint + ")"
		}
		x.Reason = reasonPending
		x.Message = message(string(catalogue.AwaitingApproval), "the peer waits until its key"+fingerprint+" is confirmed",
			fmt.Sprintf("if it is the peer's, which `postern key pub` shows there: `kubectl patch peers.postern.dev %s -n %s --type=merge -p '{\"spec\":{\"publicKey\":\"%s\",\"pending\":false}}'` (with the key, so that no other is let in), or `postern peer approve %s`",
				c.object.Name, c.object.Namespace, c.object.Spec.PublicKey, c.object.Name))
	}
	return x
}

// unknownAfter returns all conditions if that of the tunnel explains why the others are unknown.
func unknownAfter(tunnel metav1.Condition) []metav1.Condition {
	list := []metav1.Condition{tunnel}
	for _, kind := range []string{v1alpha1.AuthReachable, v1alpha1.APIServerReachable, v1alpha1.IdentityIssued} {
		list = append(list, metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: reasonNotChecked, Message: "there is no tunnel: see TunnelReady"})
	}
	return list
}

// stopped returns the status of an object whose gateway has ended.
func stopped(is v1alpha1.PeerStatus, now time.Time) v1alpha1.PeerStatus {
	out := v1alpha1.PeerStatus{ObservedGeneration: is.ObservedGeneration, State: v1alpha1.StateUnknown, LastSeen: is.LastSeen, Address: is.Address, User: is.User, Identity: is.Identity}
	for _, x := range is.Conditions {
		if x.Type == v1alpha1.Stalled { // it only exists while it is true
			continue
		}
		x.Status, x.Reason, x.Message = metav1.ConditionUnknown, reasonStopped, "the gateway ended, and nothing is known of the peer since"
		x.LastTransitionTime = metav1.NewTime(now)
		out.Conditions = append(out.Conditions, objects.Since(is.Conditions, x))
	}
	return out
}

// rttText rounds a time for display: tenths below 10 ms, whole milliseconds above.
func rttText(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return ""
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
