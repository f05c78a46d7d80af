package auth

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/postern-dev/postern/control/ticket"
)

// What a client's error can be; use errors.Is. They are told apart because each calls
// for something else: waiting, asking the other operator, or upgrading.
var (
	// ErrUnreachable: no answer came, whatever the reason.
	ErrUnreachable = errors.New("no answer")
	// ErrDenied: the gateway answered, and the answer is no.
	ErrDenied = errors.New("denied")
	// ErrPending: the gateway's operator has yet to approve our key. It is also an
	// ErrDenied.
	ErrPending = errors.New("waiting for approval")
	// ErrAlreadyUsed: the ticket was redeemed by another key.
	ErrAlreadyUsed = errors.New("the ticket was already used")
	// ErrExpired: the ticket has ended.
	ErrExpired = errors.New("the ticket has ended")
	// ErrName: our name cannot be used there.
	ErrName = errors.New("the name cannot be used")
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
	// ErrServer: the gateway failed.
	ErrServer = errors.New("the gateway failed")
)

// Codes of errors on the wire. They are stable.
const (
	codeUnknownPeer    = "unknownPeer"
	codeDenied         = "denied"
	codePending        = "pending"
	codeNotGranted     = "notGranted"
	codeWrongKey       = "wrongKey"
	codeCSRSubject     = "csrSubject"
	codeAlreadyUsed    = "alreadyUsed"
	codeExpired        = "expired"
	codeBurned         = "burned"
	codeClosed         = "closed"
	codeName           = "name"
	codeRateLimited    = "rateLimited"
	codeBusy           = "busy"
	codeIncompatible   = "incompatibleVersion"
	codeBadRequest     = "badRequest"
	codeTooLarge       = "tooLarge"
	codeNotFound       = "notFound"
	codeMethod         = "method"
	codeNoIssuer       = "noIssuer"
	codeIssuerFailed   = "issuerFailed"
	codeInternal       = "internal"
	resultOK           = "ok" // not an error, but a result in the counters
	retryAfterBusy     = time.Second
	maxRetryAfter      = time.Hour
	maxMessage         = 300
	messageInternal    = "the gateway failed; its log has the cause"
	messageUnknownPeer = "this address belongs to no peer of this gateway"
)

// meaning is what a code stands for on either side.
type meaning struct {
	status int
	is     error
}

var meanings = map[string]meaning{
	codeUnknownPeer:  {http.StatusForbidden, ErrDenied},
	codeDenied:       {http.StatusForbidden, ErrDenied},
	codePending:      {http.StatusForbidden, ErrPending},
	codeNotGranted:   {http.StatusForbidden, ErrDenied},
	codeWrongKey:     {http.StatusForbidden, ErrDenied},
	codeCSRSubject:   {http.StatusForbidden, ErrDenied},
	codeAlreadyUsed:  {http.StatusConflict, ErrAlreadyUsed},
	codeExpired:      {http.StatusGone, ErrExpired},
	codeBurned:       {http.StatusGone, ErrExpired},
	codeClosed:       {http.StatusGone, ErrExpired},
	codeName:         {http.StatusUnprocessableEntity, ErrName},
	codeRateLimited:  {http.StatusTooManyRequests, ErrRateLimited},
	codeBusy:         {http.StatusServiceUnavailable, ErrRateLimited},
	codeIncompatible: {http.StatusBadRequest, ErrIncompatible},
	codeBadRequest:   {http.StatusBadRequest, ErrRequest},
	codeTooLarge:     {http.StatusRequestEntityTooLarge, ErrRequest},
	codeNotFound:     {http.StatusNotFound, ErrRequest},
	codeMethod:       {http.StatusMethodNotAllowed, ErrRequest},
	codeNoIssuer:     {http.StatusNotImplemented, ErrNoIssuer},
	codeIssuerFailed: {http.StatusServiceUnavailable, ErrServer},
	codeInternal:     {http.StatusInternalServerError, ErrServer},
}

// statuses gives a meaning to answers with codes that we do not know.
var statuses = map[int]error{
	http.StatusForbidden:           ErrDenied,
	http.StatusConflict:            ErrAlreadyUsed,
	http.StatusGone:                ErrExpired,
	http.StatusUnprocessableEntity: ErrName,
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
	return &Error{Status: meanings[code].status, Code: code, Message: message}
}

// Error is the message for people.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("HTTP status %d (%s)", e.Status, e.Code)
	}
	return e.Message
}

// Is compares with this package's sentinels.
func (e *Error) Is(target error) bool {
	if m, ok := meanings[e.Code]; ok {
		return m.is == target || m.is == ErrPending && target == ErrDenied
	}
	if is, ok := statuses[e.Status]; ok {
		return is == target
	}
	if e.Status >= 500 {
		return target == ErrServer
	}
	return target == ErrRequest
}

// refusals gives the book's errors and the issuer's a code, by order.
var refusals = []struct {
	err  error
	code string
}{
	{ticket.ErrStorage, codeInternal},
	{ticket.ErrAlreadyUsed, codeAlreadyUsed},
	{ticket.ErrJoined, codeAlreadyUsed},
	{ticket.ErrExpired, codeExpired},
	{ticket.ErrBurned, codeBurned},
	{ticket.ErrClosed, codeClosed},
	{ticket.ErrWrongKey, codeWrongKey},
	{ticket.ErrNotGranted, codeNotGranted},
	{ticket.ErrName, codeName},
	{ticket.ErrUnknown, codeDenied},
	{ticket.ErrRequest, codeBadRequest},
	{ErrCSR, codeBadRequest},
	{ErrCSRSubject, codeCSRSubject},
	{ErrIssuer, codeIssuerFailed},
}

// answerFor turns an error of a handler into an answer. What is not a refusal is not
// told to the peer: internal is then true, and the cause belongs in our log.
func answerFor(err error) (answer *Error, internal bool) {
	if errors.As(err, &answer) {
		return answer, false
	}
	for _, r := range refusals {
		if !errors.Is(err, r.err) {
			continue
		}
		if meanings[r.code].status >= 500 {
			return newError(r.code, messageInternal), true
		}
		return newError(r.code, err.Error()), false
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
