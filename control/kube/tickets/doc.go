// Package tickets does what a cluster's Ticket objects ask of its gateway: it makes tickets,
// and redeems them.
//
//	invite   Pending ──▶ Open ──▶ Redeemed | Expired | Failed
//	join     Pending ──▶ (Reply ──▶) Joined | Failed
//
// # Rules
//
// A ticket's text is in a Secret, postern-ticket-NAME, that belongs to the Ticket and goes
// with it; so is the reply that an inviter must accept. Neither is ever in a status, an event
// or the log. The Secret of an invitation is deleted as soon as nobody can redeem it.
//
// The gateway's book keeps the UID of the object that asked for a ticket. So a Ticket that
// is deleted while it is open revokes the invitation, also when the gateway did not run at
// the time; and a gateway that died between making a ticket and storing its text revokes that
// one, which nobody can know, and makes another.
//
// A join is asked for again until it has succeeded, is refused, or the ticket has expired; a
// restart goes on with it. What an inviter refuses is tried [maxRefusals] times and no more:
// it counts the tries, and one by another key is an alarm there.
//
// Whoever may make Tickets may give the gateway's services to strangers. No role that the
// chart ships has that right, and none is aggregated to edit.
package tickets
