package auth

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/ticket"
)

// What a client's error can be; use errors.Is. They are told apart because each calls
// for something else: waiting, asking the other operator, or upgrading. What became of a
// ticket is said in the words of package ticket: an error that is its ErrAlreadyUsed,
// ErrExpired, ErrBurned and so on at the gateway is the same at the client.
var (
	// ErrUnreachable: no answer came, whatever the reason.
	ErrUnreachable = errors.New("no answer")
	// ErrDenied: the gateway answered, and the answer is no.
	ErrDenied = errors.New("denied")
	// ErrPending: the gateway's operator has yet to approve our key. It is also an
	// ErrDenied.
	ErrPending = errors.New("waiting for approval")
	// ErrRateLimited: too many requests, or too many at once. Error.RetryAfter says
	// when to come back.
	ErrRateLimited = errors.New("too many requests")
	// ErrIncompatible: the two speak different major versions.
	ErrIncompatible = errors.New("incompatible protocol version")
	// ErrNoIssuer: the gateway issues no identities.
	ErrNoIssuer = errors.New("no issuer")
	// ErrRequest: the gateway could not make sense of the request.
	ErrRequest = errors.New("request not understood")
	// ErrAnswer: what answered is no postern gateway, or a broken one.
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

// refusal is one thing that can go wrong: what it is here, on the wire and at the client.
type refusal struct {
	code   string
	status int
	// is is the error that becomes the code at the server and that the code becomes at the
	// client, unless the gateway itself has failed; nil when the server makes the answer.
	is error
	// kind is the class of error that the client sees besides; nil for none.
	kind error
}

// refusals is the table of them, by order: an error that is several is the first.
var refusals = []refusal{
	{codeInternal, http.StatusInternalServerError, ticket.ErrStorage, ErrServer},
	{codeAlreadyUsed, http.StatusConflict, ticket.ErrAlreadyUsed, nil},
	{codeAlreadyUsed, http.StatusConflict, ticket.ErrJoined, nil}, // as any second use, but for its words
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
	// A caller that does not know the code takes it by its status, for a gateway that has
	// nothing to issue to it.
	{codeTokenOnly, http.StatusNotImplemented, nil, ErrIncompatible},
	{codeUserOnly, http.StatusNotImplemented, nil, ErrIncompatible},
}

// refusalOf is the first with a code.
func refusalOf(code string) (refusal, bool) {
	i := slices.IndexFunc(refusals, func(r refusal) bool { return r.code == code })
	if i < 0 {
		return refusal{}, false
	}
	return refusals[i], true
}

// statuses gives a meaning to answers with codes that we do not know.
var statuses = map[int]error{
	http.StatusForbidden:           ErrDenied,
	http.StatusUnauthorized:        ErrDenied,
	http.StatusConflict:            ticket.ErrAlreadyUsed,
	http.StatusGone:                ticket.ErrExpired,
	http.StatusUnprocessableEntity: ticket.ErrName,
	http.StatusTooManyRequests:     ErrRateLimited,
	http.StatusNotImplemented:      ErrNoIssuer,
}

// Error is an answer that is no success, on the server's side and on the client's.
type Error struct {
	Status  int
	Code    string
	Message string
	// RetryAfter is when to come back; 0 when the gateway did not say.
	RetryAfter time.Duration
}

func newError(code, message string) *Error {
	r, _ := refusalOf(code)
	return &Error{Status: r.status, Code: code, Message: message}
}

// Error is the message for people.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Code != "":
		return fmt.Sprintf("HTTP status %d (%s)", e.Status, e.Code)
	}
	return fmt.Sprintf("HTTP status %d", e.Status)
}

// Is compares with the sentinels of this package and of package ticket.
func (e *Error) Is(target error) bool {
	if r, ok := refusalOf(e.Code); ok {
		// What failed inside the gateway is not told.
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

// answerFor turns an error of a handler into an answer. What is not a refusal is not
// told to the peer: internal is then true, and the cause belongs in our log.
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
		if errors.Is(err, ErrCSRSubject) { // the rest repeats what was asked for, and is for the record
			return newError(r.code, r.is.Error()), false
		}
		return newError(r.code, clean(err.Error(), maxMessage)), false
	}
	return newError(codeInternal, messageInternal), true
}

// UnreachableError is a request that got no answer. errors.Is(err, ErrUnreachable)
// holds.
type UnreachableError struct {
	Address string
	Err     error
}

// Error is the message for people.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no answer from the gateway at %s: %v", e.Address, e.Err)
}

// Unwrap is the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Is makes the error an ErrUnreachable.
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }
