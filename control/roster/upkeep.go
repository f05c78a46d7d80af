package roster

import "time"

const (
	// bookEvery is how often the ticket book looks at the clock while tickets are open,
	// so that a clock that is set back gives them no longer life, and how often what
	// could not be stored is tried again.
	bookEvery = time.Minute
	// lastAnswer is how long a ticket's tunnel outlives the ticket: the one who burned it
	// is still to be told so.
	lastAnswer = 2 * time.Second
)

// upkeep is the memory of Maintain.
type upkeep struct {
	// looked is when the ticket book was last asked to look at the clock, and failed
	// whether it could not store what it saw.
	looked time.Time
	failed bool
	// stored is when it was last tried to store what commands could not.
	stored time.Time
	// outdated is since when the tunnel has other one-time peers than the book; zero
	// when it has the same.
	outdated time.Time
	// undo is when what could not be undone is tried again.
	undo time.Time
}

// Maintain does what depends on time alone. It is called every second or two, by one goroutine.
func (reg *Registry) Maintain(now time.Time) {
	reg.expireTickets(now)
	reg.dropOneTime(now)
	reg.retryStoring(now)
	reg.undoUnconfirmed(now)
}

// expireTickets ends the tickets whose time is up.
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

// retryStoring tries to store what was taken away from peers and could not be stored then.
func (reg *Registry) retryStoring(now time.Time) {
	if now.Sub(reg.upkeep.stored) < bookEvery {
		return
	}
	reg.upkeep.stored = now
	if err := reg.storeAgain(); err != nil {
		reg.log.Warn("still cannot store the pending revocations", "error", err)
	}
}

// dropOneTime takes the tunnels of tickets down that have ended, whatever ended them. It
// leaves the one who did a moment to be told.
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
