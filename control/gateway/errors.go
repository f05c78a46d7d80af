package gateway

import (
	"errors"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel"
)

var (
	// errConflict marks a peer of the file and one of the state directory that cannot
	// both be.
	errConflict = errors.New("the configuration and the state directory contradict each other")
	// errNoAnswer marks a redemption that reached nobody, which calls for a reply.
	errNoAnswer = errors.New("the inviter does not answer")
	// errStopping refuses changes to a gateway that is being closed.
	errStopping error = admin.Conflict("the gateway is stopping", "")
)

// misconfigured blames a failure on a field of the configuration. It is a config.Problem
// and whatever err is.
func misconfigured(cfg *config.Resolved, path string, err error) error {
	return &fieldError{cfg.ProblemAt(path, err.Error()), err}
}

type fieldError struct {
	problem config.Problem
	cause   error
}

func (e *fieldError) Error() string   { return e.problem.Error() }
func (e *fieldError) Unwrap() []error { return []error{e.problem, e.cause} }

// contradicts reports whether peers cannot be because of others, which is for the
// operator to solve.
func contradicts(err error) bool {
	return errors.Is(err, tunnel.ErrPeerSet) || errors.Is(err, errConflict)
}

// problem turns an error of a ticket or an inviter into what a command shows. Those about
// the text itself are mistakes of usage.
func problem(what string, err error) error {
	var shown *admin.Error
	if errors.As(err, &shown) {
		return shown
	}
	var taken *ticket.KeyTakenError
	if errors.As(err, &taken) && taken.Holder != "" { // decided here; what an inviter says has none
		return admin.Conflict(what+": the joiner's key is "+taken.Holder, taken.Hint)
	}
	for _, usage := range []error{
		ticket.ErrNotTicket, ticket.ErrTruncated, ticket.ErrDamaged, ticket.ErrIsReply, ticket.ErrIsTicket, ticket.ErrRequest,
	} {
		if errors.Is(err, usage) {
			return admin.Usage(what+": "+err.Error(), "")
		}
	}
	for _, refused := range []error{ticket.ErrName, ticket.ErrTooMany} {
		if errors.Is(err, refused) {
			return admin.Conflict(what+": "+err.Error(), "")
		}
	}
	return admin.Failed(what+": "+err.Error(), "")
}
