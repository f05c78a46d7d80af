package check

import (
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameTickets is the check of open and redeemed tickets.
const NameTickets = "tickets"

// ticketAlarmLife is how long an alarm is shown: who is called by it has an hour, as long
// as a ticket lives unless told otherwise, and the audit log keeps it for ever.
const ticketAlarmLife = time.Hour

// Tickets tells whether a ticket was tried by a second key of late. peer is who redeemed
// it first, empty when that is not known; a zero time means never.
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
