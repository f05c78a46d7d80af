package roster

import "time"

const (
	// bookEvery is how often the ticket book looks at the clock while tickets are open, so that
	// setting the clock back does not prolong them, and how often failed writes are retried.
	bookEvery = time.Minute
	// lastAnswer is how long a ticket's tunnel outlives the ticket, so that whoever burned it still
	// gets the answer.
	lastAnswer = 2 * time.Second
)

// upkeep is the state of Maintain.
type upkeep struct {
	// looked is when the ticket book last looked at the clock, and failed whether it could not
	// store the result.
	looked time.Time
	failed bool
	// stored is when failed writes of commands were last retried.
	stored time.Time
	// outdated is since when the tunnel's one-time peers differ from the book's; zero if they do
	// not.
	outdated time.Time
	// undo is when to retry a failed rollback.
	undo time.Time
}

// Maintain does the work that depends on time. One goroutine calls it every second or two.
func (reg *Registry) Maintain(now time.Time) {
	reg.expireTickets(now)
	reg.dropOneTime(now)
	reg.retryStoring(now)
	reg.undoUnconfirmed(now)
}

// expireTickets ends expired tickets.
func (reg *Registry) expireTickets(now time.Time) {
	next, open := reg.book.NextDeadline()
	open = open || reg.book.Unstored()
	recently := now.Sub(reg.upkeep.looked) < bookEvery
	if !open || recently && (reg.upkeep.failed || now.Before(next)) {
		return
	}
	reg.upkeep.looked = now
	_, err := reg.book.Expire(now)
	if err != nil {
		reg.log.Warn("failed to store the tickets; expired ones are refused", "error", err)
	}
	reg.upkeep.failed = err != nil
}

// retryStoring tries to store revocations that could not be stored before.
func (reg *Registry) retryStoring(now time.Time) {
	if now.Sub(reg.upkeep.stored) < bookEvery {
		return
	}
	reg.upkeep.stored = now
	if err := reg.storeAgain(); err != nil {
		reg.log.Warn("still cannot store the pending revocations", "error", err)
	}
}

// dropOneTime closes the tunnels of ended tickets, whatever ended them, after a moment in which the
// joiner can be told.
func (reg *Registry) dropOneTime(now time.Time) {
	if !reg.Load().hasOther(reg.book.OneTimePeers(now)) {
		reg.upkeep.outdated = time.Time{}
		return
	}
	if reg.upkeep.outdated.IsZero() {
		reg.upkeep.outdated = now
	}
	if now.Sub(reg.upkeep.outdated) < lastAnswer {
		return
	}
	if err := reg.Change((*Change).Refresh); err != nil {
		reg.log.Warn("failed to close the tunnel of an ended ticket", "error", err)
	}
}
