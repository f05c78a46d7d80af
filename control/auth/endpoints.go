package auth

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/mcs"
)

// endpoint is one kind of request, with everything that is decided about it before its handler
// runs.
type endpoint struct {
	method, path string
	// callers may send it, if they are granted what it needs.
	callers callers
	needs   []string
	// outside: it is also answered outside the tunnel, for a caller with a token.
	outside bool
	// body and answer bound the request and the response, in bytes. Their types bound the
	// individual fields.
	body, answer int
	cost         cost
	// pace replaces that of the cost, for the whole path; zero: that of the cost.
	pace pace
	// apart: its pace is charged before anything is read, and requests beyond it do not count
	// against the caller's others.
	apart bool
	// refusal is audited when an unauthorised caller asks, and when the handler returns 403 unless
	// it audits that itself.
	refusal audit.Event
	records bool
	// capability is its name in a hello. has reports whether this gateway supports it, and missing
	// is the answer if not; nil: every gateway does.
	capability string
	has        func(*Server) bool
	missing    *Error
	work
	// said is the type of the answer, for documentation; nil: a load.
	said reflect.Type
}

// callers are kinds of callers. Any other caller is a stranger, and always gets 403.
type callers uint8

const (
	byPeer    callers = 1 << iota // a gateway that is a peer here
	byPending                     // one whose key has yet to be approved
	byTicket                      // the one-time peer of an open ticket
	byStock                       // a plain WireGuard peer, which has no gateway
)

// cost is the most that a request may cost this gateway.
type cost int

const (
	_         cost = iota
	costNone       // only the answer
	costRead       // other parts have work: a path finder, a check
	costWrite      // the state is written
)

// pace is how often a caller may ask: a rate, and a burst.
type pace struct {
	rate  rate.Limit
	burst int
}

// paces are those of the costs. Every request also counts as one of costNone. A ticket is redeemed
// once, and again if the answer was lost; the burst is for a ticket that many hold. With identities
// and rotations, one caller causes less than a write per second in any minute.
var paces = map[cost]pace{
	costNone:  {requestRate, requestBurst},
	costRead:  {requestRate, requestBurst},
	costWrite: {0.25, 24},
}

// Requests and answers are a few hundred bytes, except for those with PEM: a signing request (with
// a key of 8192 bits: 4 KB), a certificate with its chain, and authorities ([api.MaxCAData]; a line
// end takes two bytes in JSON). All leave room for newer versions.
const (
	smallBody   = 4 << 10
	pemBody     = 32 << 10
	helloAnswer = 4 * (api.MaxCAData + MaxReport)
)

// A catalogue of services comes as a series of messages, and leaves room for a peer's other
// requests.
const (
	servicesRate  = requestRate
	servicesBurst = requestBurst / 2
)

// endpoints is the table of all requests.
var endpoints = []endpoint{
	{
		method: http.MethodGet, path: HelloPath, callers: byPeer | byPending | byTicket, outside: true,
		answer: helloAnswer, cost: costNone, refusal: audit.Refuse,
		work: on((*Server).hello), said: reflect.TypeFor[Hello](),
	},
	{
		method: http.MethodPost, path: pathRedeem, callers: byTicket,
		body: pemBody, answer: 2 * pemBody, cost: costWrite, refusal: audit.Refuse, records: true, // by the book
		capability: CapabilityRedeem, has: func(s *Server) bool { return s.o.Redeemer != nil },
		missing: newError(codeDenied, "this gateway has no tickets"),
		work:    on((*Server).redeem), said: reflect.TypeFor[redeemResponse](),
	},
	{
		method: http.MethodPost, path: pathIdentity, callers: byPeer, needs: []string{api.ServiceAuth, api.ServiceAPIServer}, outside: true,
		body: pemBody, answer: 2 * pemBody, cost: costWrite, pace: pace{identityRate, identityBurst}, refusal: audit.Refuse,
		capability: CapabilityIdentity, has: func(s *Server) bool { return s.issuer() != nil },
		missing: newError(codeNoIssuer, "this gateway issues no identities (spec.services.auth.issuer is not set)"),
		work:    on((*Server).identity), said: reflect.TypeFor[identityResponse](),
	},
	{
		method: http.MethodPost, path: pathPath, callers: byPeer,
		body: MaxPathMessage, answer: smallBody, cost: costRead, refusal: audit.Refuse,
		capability: CapabilityPath, has: func(s *Server) bool { return s.o.OnPath != nil },
		missing: newError(codeNotFound, "this gateway finds no paths"),
		work:    on((*Server).path), said: reflect.TypeFor[taken](),
	},
	{
		method: http.MethodPost, path: pathReport, callers: byPeer,
		body: MaxReport, answer: smallBody, cost: costRead, pace: pace{reportRate, reportBurst}, refusal: audit.Refuse,
		capability: CapabilityReport, has: func(s *Server) bool { return s.o.OnReport != nil },
		missing: newError(codeNotFound, "this gateway takes no reports"),
		work:    on((*Server).report), said: reflect.TypeFor[taken](),
	},
	{
		method: http.MethodPost, path: pathThroughput, callers: byPeer,
		body: loadBytes + loadChunk, answer: smallBody, cost: costRead, pace: pace{loadRate, loadBurst}, refusal: audit.Refuse,
		capability: CapabilityThroughput,
		work:       on((*Server).throughput), said: reflect.TypeFor[loadAnswer](),
	},
	{
		method: http.MethodGet, path: pathThroughput, callers: byPeer,
		answer: loadBytes, cost: costRead, pace: pace{loadRate, loadBurst}, refusal: audit.Refuse,
		work: on((*Server).giveLoad),
	},
	{
		method: http.MethodPost, path: pathRotation, callers: byPeer,
		body: smallBody, answer: smallBody, cost: costWrite, pace: pace{rotationRate, rotationBurst}, refusal: audit.Refuse,
		capability: CapabilityRotation, has: func(s *Server) bool { return s.o.OnRotation != nil },
		missing: newError(codeNotFound, "this gateway takes no other key of a peer"),
		work:    on((*Server).rotation), said: reflect.TypeFor[taken](),
	},
	{
		method: http.MethodPost, path: pathServices, callers: byPeer,
		body: mcs.MaxMessage, answer: smallBody, cost: costRead, pace: pace{servicesRate, servicesBurst}, apart: true, refusal: audit.Refuse,
		capability: CapabilityServices, has: func(s *Server) bool { return s.o.OnServices != nil },
		missing: newError(codeNotFound, "this gateway takes no services of clusters"),
		work:    on((*Server).services), said: reflect.TypeFor[servicesAnswer](),
	},
}

// lookup returns the endpoint of a method and a path, nil if there is none, and the methods of the
// path.
func lookup(method, path string) (*endpoint, []string) {
	var methods []string
	for i := range endpoints {
		if e := &endpoints[i]; e.path == path {
			if e.method == method {
				return e, nil
			}
			methods = append(methods, e.method)
		}
	}
	slices.Sort(methods)
	return nil, methods
}

// work is a handler, and what it reads first.
type work struct {
	request reflect.Type
	parse   func(body []byte, most int) (any, error)
	do      func(ctx context.Context, s *Server, c *call, q any) (any, error)
}

// Requests that are not messages.
type (
	nothing struct{}
	// stream is a load: its handler reads it.
	stream struct{}
)

// on wraps a handler, which gets a request of its type that is within its bounds and in a supported
// version.
func on[Q any](handler func(*Server, context.Context, *call, Q) (any, error)) work {
	return work{
		request: reflect.TypeFor[Q](),
		parse: func(body []byte, most int) (any, error) {
			var q Q
			if err := bounded.Unmarshal(body, most, &q); err != nil {
				return nil, newError(codeBadRequest, "the body: "+err.Error())
			}
			if v, ok := any(q).(interface{ version() string }); ok {
				if err := checkVersion(v.version(), "the caller"); err != nil {
					return nil, err
				}
			}
			return q, nil
		},
		do: func(ctx context.Context, s *Server, c *call, q any) (any, error) { return handler(s, ctx, c, q.(Q)) },
	}
}

// isMessage reports whether there is a JSON body.
func (w work) isMessage() bool {
	return w.request != reflect.TypeFor[nothing]() && w.request != reflect.TypeFor[stream]()
}

// kind returns a caller's kind.
func (c Caller) kind() callers {
	switch {
	case c.Kind == KindOneTime:
		return byTicket
	case c.Kind == KindStock:
		return byStock
	case c.Pending:
		return byPending
	}
	return byPeer
}

// Serves reports whether a kind of peer may make any request here.
func Serves(k Kind) bool {
	return slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.callers&Caller{Kind: k}.kind() != 0 })
}

// admit returns why a caller may not make this request.
func (e *endpoint) admit(c Caller) error {
	switch kind := c.kind(); {
	case e.callers&kind != 0:
	case kind == byPending:
		return newError(codePending, "this peer has yet to be approved here (`postern peer approve "+c.Name+"`)")
	case kind == byStock:
		return newError(codeDenied, "a plain WireGuard peer is told nothing here")
	case e.callers == byTicket:
		return newError(codeDenied, "tickets are redeemed through their own tunnel")
	default:
		return newError(codeDenied, "only for peers; a ticket has to be redeemed first")
	}
	for _, service := range e.needs {
		if !c.may(service) {
			return newError(codeNotGranted, "the service "+service+" is not granted to this peer (`postern peer allow "+c.Name+" "+strings.Join(e.needs, ",")+"`)")
		}
	}
	return nil
}

// capabilities returns what a gateway supports.
func capabilities(table []endpoint, s *Server) []string {
	out := []string{}
	for _, e := range table {
		if e.capability == "" || e.has != nil && !e.has(s) {
			continue
		}
		out = append(out, e.capability)
		if e.capability == CapabilityIdentity && s.issuer().Tokens() {
			out = append(out, CapabilityToken)
		}
	}
	return out
}

// message is a document that is parsed elsewhere, with its own bounds.
type message = json.RawMessage
