package enrol

import (
	"errors"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/ticket"
)

// errNoAnswer marks a redemption that reached nobody, so that a reply is needed.
var errNoAnswer = errors.New("the inviter does not answer")

// problem converts an error of a ticket or an inviter to a command's error. Errors in the text
// itself are usage errors.
func problem(what string, err error) error {
	var shown *admin.Error
	if errors.As(err, &shown) {
		return shown
	}
	var taken *ticket.KeyTakenError
	if errors.As(err, &taken) && taken.Holder != "" { // decided here; an inviter's error names none
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
