package check

import (
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameTickets is the check of open and redeemed tickets.
const NameTickets = "tickets"

// ticketAlarmLife is how long an alarm is shown: the operator has an hour to react, a ticket's
// default lifetime, and the audit log keeps it for ever.
const ticketAlarmLife = time.Hour

// Tickets reports whether a second key recently tried a ticket. peer is who redeemed it first,
// empty if unknown; a zero time means never.
func Tickets(alarmAt time.Time, peer string) verdict.Finding {
	r := beginOwn(NameTickets)
	r.Target = api.ServiceAuth
	age := time.Since(alarmAt)
	if alarmAt.IsZero() || age >= ticketAlarmLife {
		return r.ok(0)
	}
	p := catalogue.Params{Inbound: true, Age: max(age, time.Millisecond)}
	p.PeerName = peer
	return r.found(api.Warning, "", catalogue.TicketAlarm, p)
}
