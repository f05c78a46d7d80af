package enrol

import (
	"errors"
	"fmt"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/ticket"
)

// errNoAnswer marks a redemption that reached nobody, so that a reply is needed.
var errNoAnswer = errors.New("the inviter does not answer")

// unstored is the error of a join whose peer could not be stored, after what has happened.
func unstored(err error, after string) error {
	if errors.As(err, new(*admin.Error)) {
		return err
	}
	return admin.Failed(fmt.Sprintf("join: %s, but this gateway could not store that: %v", after, err),
		"then join with the same ticket again: for this gateway it is still good")
}

// problem converts an error of a ticket or an inviter to a command's error. Errors in the text
// itself are usage errors.
func problem(what string, err error) error {
	if shown, ok := errors.AsType[*admin.Error](err); ok {
		return shown
	}
	if taken, ok := errors.AsType[*ticket.KeyTakenError](err); ok && taken.Holder != "" { // decided here; an inviter's error names none
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
	hint := ""
	if errors.Is(err, ticket.ErrStorage) {
		hint = "run `postern check`; then try it again: nothing is lost"
	}
	return admin.Failed(what+": "+err.Error(), hint)
}
