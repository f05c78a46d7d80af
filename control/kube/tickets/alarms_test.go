package tickets

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/events"
	"github.com/postern-dev/postern/control/logtail"
	"github.com/postern-dev/postern/control/ticket"
)

// However many tickets have an alarm, each gets its event.
func TestEachAlarmedTicketHasItsEvent(t *testing.T) {
	tail := logtail.New(slog.DiscardHandler)
	log := audit.New(slog.New(tail))
	for i := range ticket.MaxOpen {
		log.Record(t.Context(), audit.Alarm, audit.Ticket(fmt.Sprintf("%04x", i)), audit.Code(audit.CodeTicketAlarm), audit.Peer("edge"),
			audit.PublicKey([32]byte{byte(i)}), audit.Reason("a second key"))
	}
	var (
		a     alarms
		got   = map[string]int{}
		about = func(id string) (corev1.ObjectReference, bool) { return corev1.ObjectReference{Name: id}, true }
		taken = 0
	)
	// Events that do not fit into the recorder's queue follow in the next turns.
	for range ticket.MaxOpen/100 + 1 {
		taken = 0
		a.write(tail.Alarms(), about, func(o corev1.ObjectReference, _ events.Event) bool {
			if taken++; taken > 100 {
				return false
			}
			got[o.Name]++
			return true
		})
	}
	for i := range ticket.MaxOpen {
		if n := got[fmt.Sprintf("%04x", i)]; n != 1 {
			t.Errorf("ticket %04x has %d events, want 1", i, n)
		}
	}
}

func TestAlarmsBecomeEvents(t *testing.T) {
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	alarm := func(ticket string, count uint64) api.Alarm {
		return api.Alarm{Code: audit.CodeTicketAlarm, First: first, Count: count, Attrs: []api.LogAttr{
			{Key: audit.KeyTicket, Value: ticket}, {Key: audit.KeyPublicKey, Value: "KEY"}, {Key: audit.KeyReason, Value: "a second key"}}}
	}
	of := func(list ...api.Alarm) []api.Alarm { return list }
	var flood []api.Alarm
	for i := range 500 {
		flood = append(flood, api.Alarm{Code: string(catalogue.NotGranted), First: first, Count: 1, Subject: fmt.Sprint("peer-", i)})
	}
	restarted := alarm("a", 1)
	restarted.First = first.Add(time.Hour)
	var (
		a     alarms
		full  bool
		got   []string
		about = func(ticket string) (corev1.ObjectReference, bool) {
			return corev1.ObjectReference{Name: ticket}, ticket != "unknown"
		}
		record = func(o corev1.ObjectReference, e events.Event) bool {
			if full {
				return false
			}
			got = append(got, o.Name)
			if e.Type != events.Warning || e.Reason != "TicketAlarm" || !strings.Contains(e.Message, "PST0210: the key KEY tried it: a second key") {
				t.Errorf("the event is %+v", e)
			}
			return true
		}
	)
	for _, step := range []struct {
		name   string
		raised []api.Alarm
		full   bool
		want   string
	}{
		{"nothing", nil, false, ""},
		{"one, which cannot be taken", of(alarm("a", 1)), true, ""},
		{"it is tried again", of(alarm("a", 1)), false, "a"},
		{"nothing new", of(alarm("a", 1)), false, ""},
		{"again, among others", append(of(alarm("a", 9)), flood...), false, "a"},
		{"another, and one without an object", of(alarm("a", 9), alarm("b", 1), alarm("unknown", 1)), false, "b"},
		{"after a restart of the gateway", of(restarted), false, "a"},
		{"once more, while it cannot be taken", of(alarm("a", 20)), true, ""},
		{"that is not forgotten", of(alarm("a", 20)), false, "a"},
	} {
		got, full = nil, step.full
		a.write(step.raised, about, record)
		if strings.Join(got, " ") != step.want {
			t.Errorf("%s: events about %q, want %q", step.name, got, step.want)
		}
	}
}
