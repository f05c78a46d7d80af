package auth

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/ticket"
)

// Errors of a client; use errors.Is. Each calls for something else: waiting, asking the other
// operator, or upgrading. Errors about a ticket are those of package ticket: its ErrAlreadyUsed,
// ErrExpired, ErrBurned and so on are the same at the gateway and the client.
var (
	// ErrUnreachable: no answer came, whatever the reason.
	ErrUnreachable = errors.New("no answer")
	// ErrDenied: the gateway answered, and the answer is no.
	ErrDenied = errors.New("denied")
	// ErrPending: the gateway's operator has yet to approve our key. It is also an ErrDenied.
	ErrPending = errors.New("waiting for approval")
	// ErrRateLimited: too many requests, or too many at once. Error.RetryAfter says when to retry.
	ErrRateLimited = errors.New("too many requests")
	// ErrIncompatible: the two speak different major versions.
	ErrIncompatible = errors.New("incompatible protocol version")
	// ErrNoIssuer: the gateway issues no identities.
	ErrNoIssuer = errors.New("no issuer")
	// ErrRequest: the gateway could not parse the request.
	ErrRequest = errors.New("request not understood")
	// ErrAnswer: the answer is not from a postern gateway, or from a broken one.
	ErrAnswer = errors.New("answer not understood")
	// ErrConfigured: our key is in the gateway's configuration, which only its operator
	// changes.
	ErrConfigured = errors.New("the key is in the other side's configuration")
	// ErrServer: the gateway failed.
	ErrServer = errors.New("the gateway failed")
)

// Codes of errors on the wire. They are stable.
const (
	codeUnknownPeer     = "unknownPeer"
	codeDenied          = "denied"
	codePending         = "pending"
	codeNotGranted      = "notGranted"
	codeWrongKey        = "wrongKey"
	codeProof           = "proof"
	codeKeyTaken        = "keyTaken"
	codeCSRSubject      = "csrSubject"
	codeAlreadyUsed     = "alreadyUsed"
	codeExpired         = "expired"
	codeBurned          = "burned"
	codeClosed          = "closed"
	codeName            = "name"
	codeRateLimited     = "rateLimited"
	codeBusy            = "busy"
	codeIncompatible    = "incompatibleVersion"
	codeBadRequest      = "badRequest"
	codeTooLarge        = "tooLarge"
	codeNotFound        = "notFound"
	codeMethod          = "method"
	codeNoIssuer        = "noIssuer"
	codeTokenOnly       = "tokenOnly"
	codeUserOnly        = "userOnly"
	codeUnauthorized    = "unauthorized"
	codeIssuerFailed    = "issuerFailed"
	codeConfigured      = "configured"
	codeInternal        = "internal"
	resultOK            = "ok" // not an error, but a result in the counters
	retryAfterBusy      = time.Second
	maxRetryAfter       = time.Hour
	maxMessage          = 300
	messageInternal     = "the gateway failed; its log has the cause"
	messageUnauthorized = "a token of a peer is needed"
	messageUnknownPeer  = "this address belongs to no peer of this gateway"
)

// refusal is one kind of failure: the error here, its code on the wire, and the error at the
// client.
type refusal struct {
	code   string
	status int
	// is is the error that the server encodes as the code and the client decodes from it, unless
	// the gateway itself has failed; nil if the server creates the answer.
	is error
	// kind is the class of error for the client, in addition; nil for none.
	kind error
}

// refusals is their table, in order: an error that matches several is the first.
var refusals = []refusal{
	{codeInternal, http.StatusInternalServerError, ticket.ErrStorage, ErrServer},
	{codeAlreadyUsed, http.StatusConflict, ticket.ErrAlreadyUsed, nil},
	{codeAlreadyUsed, http.StatusConflict, ticket.ErrJoined, nil}, // like any second use, but for its text
	{codeExpired, http.StatusGone, ticket.ErrExpired, nil},
	{codeBurned, http.StatusGone, ticket.ErrBurned, nil},
	{codeClosed, http.StatusGone, ticket.ErrClosed, nil},
	{codeWrongKey, http.StatusForbidden, ticket.ErrWrongKey, ErrDenied},
	{codeProof, http.StatusForbidden, ticket.ErrProof, ErrDenied},
	{codeNotGranted, http.StatusForbidden, ticket.ErrNotGranted, ErrDenied},
	{codeKeyTaken, http.StatusUnprocessableEntity, ticket.ErrKeyTaken, nil},
	{codeName, http.StatusUnprocessableEntity, ticket.ErrName, nil},
	{codeDenied, http.StatusForbidden, ticket.ErrUnknown, ErrDenied},
	{codeBadRequest, http.StatusBadRequest, ticket.ErrRequest, ErrRequest},
	{codeBadRequest, http.StatusBadRequest, ErrCSR, ErrRequest},
	{codeCSRSubject, http.StatusForbidden, ErrCSRSubject, ErrDenied},
	{codeIssuerFailed, http.StatusServiceUnavailable, ErrIssuer, ErrServer},
	{codeConfigured, http.StatusConflict, ErrConfigured, nil},

	{codeUnknownPeer, http.StatusForbidden, nil, ErrDenied},
	{codeUnauthorized, http.StatusUnauthorized, nil, ErrDenied},
	{codePending, http.StatusForbidden, ErrPending, ErrDenied},
	{codeRateLimited, http.StatusTooManyRequests, nil, ErrRateLimited},
	{codeBusy, http.StatusServiceUnavailable, nil, ErrRateLimited},
	{codeIncompatible, http.StatusBadRequest, nil, ErrIncompatible},
	{codeTooLarge, http.StatusRequestEntityTooLarge, nil, ErrRequest},
	{codeNotFound, http.StatusNotFound, nil, ErrRequest},
	{codeMethod, http.StatusMethodNotAllowed, nil, ErrRequest},
	{codeNoIssuer, http.StatusNotImplemented, nil, ErrNoIssuer},
	// A caller that does not know the code uses its status, which stands for a gateway that has
	// nothing to issue to it.
	{codeTokenOnly, http.StatusNotImplemented, nil, ErrIncompatible},
	{codeUserOnly, http.StatusNotImplemented, nil, ErrIncompatible},
}

// refusalOf returns the first with a code.
func refusalOf(code string) (refusal, bool) {
	i := slices.IndexFunc(refusals, func(r refusal) bool { return r.code == code })
	if i < 0 {
		return refusal{}, false
	}
	return refusals[i], true
}

// statuses interprets answers with unknown codes.
var statuses = map[int]error{
	http.StatusForbidden:           ErrDenied,
	http.StatusUnauthorized:        ErrDenied,
	http.StatusConflict:            ticket.ErrAlreadyUsed,
	http.StatusGone:                ticket.ErrExpired,
	http.StatusUnprocessableEntity: ticket.ErrName,
	http.StatusTooManyRequests:     ErrRateLimited,
	http.StatusNotImplemented:      ErrNoIssuer,
}

// Error is an unsuccessful answer, on the server's side and on the client's.
type Error struct {
	Status  int
	Code    string
	Message string
	// RetryAfter is when to retry; 0 if the gateway did not say.
	RetryAfter time.Duration
}

func newError(code, message string) *Error {
	r, _ := refusalOf(code)
	return &Error{Status: r.status, Code: code, Message: message}
}

// Error returns the message for people.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Code != "":
		return fmt.Sprintf("HTTP status %d (%s)", e.Status, e.Code)
	}
	return fmt.Sprintf("HTTP status %d", e.Status)
}

// Is matches the sentinels of this package and of package ticket.
func (e *Error) Is(target error) bool {
	if r, ok := refusalOf(e.Code); ok {
		// What failed inside the gateway is not disclosed.
		return target != nil && (r.kind == target || r.is == target && r.status < 500)
	}
	if is, ok := statuses[e.Status]; ok {
		return is == target
	}
	if e.Status >= 500 {
		return target == ErrServer
	}
	return target == ErrRequest
}

// answerFor converts an error of a handler to an answer. Errors other than refusals are not
// disclosed to the peer: internal is then true, and the cause belongs in our log.
func answerFor(err error) (answer *Error, internal bool) {
	if errors.As(err, &answer) {
		return answer, false
	}
	for _, r := range refusals {
		if r.is == nil || !errors.Is(err, r.is) {
			continue
		}
		if r.status >= 500 {
			return newError(r.code, messageInternal), true
		}
		if errors.Is(err, ErrCSRSubject) { // the rest repeats the request, and is for the audit log
			return newError(r.code, r.is.Error()), false
		}
		return newError(r.code, clean(err.Error(), maxMessage)), false
	}
	return newError(codeInternal, messageInternal), true
}

// UnreachableError is a request without an answer. It matches ErrUnreachable.
type UnreachableError struct {
	Address string
	Err     error
}

// Error returns the message for people.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no answer from the gateway at %s: %v", e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Is matches ErrUnreachable.
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }
