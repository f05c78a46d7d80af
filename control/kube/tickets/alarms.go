package tickets

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/events"
)

// reasonTicketAlarm is the reason of events about tickets that a second key tried.
const reasonTicketAlarm = "TicketAlarm"

// alarms writes events about tickets that a second key tried. The gateway stores its alarms
// separately from its log, so none is missed. An event that cannot be written now is retried.
type alarms struct {
	// written are the alarms whose events were written, by ticket.
	written map[string]api.Alarm
}

// write writes events for alarms that are new, or were raised again. about returns the object of a
// ticket; record reports whether an event was accepted.
func (a *alarms) write(raised []api.Alarm, about func(ticket string) (corev1.ObjectReference, bool), record func(corev1.ObjectReference, events.Event) bool) {
	written := map[string]api.Alarm{}
	for _, x := range raised {
		attrs := map[string]string{}
		for _, at := range x.Attrs {
			attrs[at.Key] = at.Value
		}
		id := attrs[audit.KeyTicket]
		if x.Code != string(catalogue.TicketAlarm) || id == "" {
			continue
		}
		was, known := a.written[id]
		if known {
			written[id] = was
		}
		if known && was.Count == x.Count && was.First.Equal(x.First) {
			continue
		}
		// The message is that of the first key, so that there is one event with a count.
		if object, found := about(id); found && record(object, events.Event{Type: events.Warning, Reason: reasonTicketAlarm,
			Message: x.Code + ": the key " + attrs[audit.KeyPublicKey] + " tried it: " + attrs[audit.KeyReason]}) {
			written[id] = x
		}
	}
	a.written = written
}
