// Package tickets processes a cluster's Ticket objects: it creates tickets, and redeems them.
//
//	invite   Pending ──▶ Open ──▶ Redeemed | Expired | Failed
//	join     Pending ──▶ (Reply ──▶) Joined | Failed
//
// # Rules
//
// A ticket's text is in a Secret, postern-ticket-NAME, that the Ticket owns and that is deleted
// with it. So is the reply that an inviter must accept. Neither is ever in a status, an event or
// the log. The Secret of an invitation is deleted as soon as it can no longer be redeemed.
//
// The gateway's book stores the UID of the object that requested a ticket. So deleting an open
// Ticket revokes the invitation, even if the gateway was not running at the time. If a gateway
// died between creating a ticket and storing its text, it revokes that ticket, which is unknown
// to anyone, and creates another.
//
// A join is retried until it has succeeded, is refused, or the ticket has expired; a restart
// continues it. If an inviter refuses, the join is tried at most [maxRefusals] times: the inviter
// counts the attempts, and one by another key raises an alarm there.
//
// Permission to create Tickets includes permission to give strangers access to the gateway's
// services. No role of the chart has that permission, and none is aggregated to edit.
//
// # Files
//
//   - controller.go: the loop over Ticket objects
//   - invite.go: invitations
//   - join.go: joins, and when one is tried again
//   - secret.go: the Secret with the ticket's text
//   - status.go: phases and conditions
//   - failed.go: failed Tickets in the gateway's own checks
//   - alarms.go: Events about tickets that a second key tried
//   - gateway.go: what is needed of the gateway
package tickets
