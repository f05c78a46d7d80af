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

// endpoint is one thing that can be asked, with everything that is decided about it before its
// handler runs.
type endpoint struct {
	method, path string
	// callers may ask, of those who are granted what it needs.
	callers callers
	needs   []string
	// outside: it is answered outside the tunnel as well, to a caller with a token.
	outside bool
	// body bounds what is asked and answer what is said to it, in bytes. The fields of the two
	// have bounds of their own, where their types are.
	body, answer int
	cost         cost
	// pace is instead of that of the cost, for all of the path; zero: that of the cost.
	pace pace
	// apart: its pace is charged before anything is read, and what is beyond it takes nothing of the
	// caller's other requests.
	apart bool
	// refusal is recorded when somebody asks who may not, and when the handler says 403 unless
	// it records that itself.
	refusal audit.Event
	records bool
	// capability is what a hello calls it. has reports whether this gateway has it, and missing
	// is what it says otherwise; nil: every gateway has it.
	capability string
	has        func(*Server) bool
	missing    *Error
	work
	// said is the type of the answer, for whoever reads it; nil: a load.
	said reflect.Type
}

// callers are kinds of callers. Who is none of them is a stranger, and gets 403 everywhere.
type callers uint8

const (
	byPeer    callers = 1 << iota // a gateway that is a peer here
	byPending                     // one whose key has yet to be approved
	byTicket                      // the one-time peer of an open ticket
	byStock                       // a plain WireGuard peer, which has no gateway
)

// cost says what a request costs this gateway at most.
type cost int

const (
	_         cost = iota
	costNone       // nothing but its answer
	costRead       // others are put to work: a path finder, a check
	costWrite      // the state is written
)

// pace is how often a caller may ask: a rate, and how many in a row.
type pace struct {
	rate  rate.Limit
	burst int
}

// paces are those of the costs. Every request counts as one of costNone besides. A ticket's
// holder redeems it once, and asks again when the answer got lost; some in a row are for a ticket
// that many have. With its identities and rotations, one caller has less than a write a second in
// any minute.
var paces = map[cost]pace{
	costNone:  {requestRate, requestBurst},
	costRead:  {requestRate, requestBurst},
	costWrite: {0.25, 24},
}

// Requests and answers are some hundred bytes but for those with PEM in them: a signing request
// (of a key of 8192 bits: 4 KB), a certificate with those above it, and authorities
// ([api.MaxCAData]; a line end takes two bytes in JSON). All leave room for what newer versions
// say.
const (
	smallBody   = 4 << 10
	pemBody     = 32 << 10
	helloAnswer = 4 * (api.MaxCAData + MaxReport)
)

// A catalogue of services comes in a row of messages, and leaves room for a peer's other requests.
const (
	servicesRate  = requestRate
	servicesBurst = requestBurst / 2
)

// endpoints is the table of all that can be asked.
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

// lookup is the endpoint of a method and a path, nil when there is none, and the methods that the
// path has.
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

// work is what a handler does, and what it reads first.
type work struct {
	request reflect.Type
	parse   func(body []byte, most int) (any, error)
	do      func(ctx context.Context, s *Server, c *call, q any) (any, error)
}

// Requests that are no messages.
type (
	nothing struct{}
	// stream is a load: its handler reads it.
	stream struct{}
)

// on makes the work of a handler: it gets a request of its type that is within its bounds, in a
// version that is understood.
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

// isMessage reports whether there is a body of JSON.
func (w work) isMessage() bool {
	return w.request != reflect.TypeFor[nothing]() && w.request != reflect.TypeFor[stream]()
}

// kind is a caller's.
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

// Serves reports whether a kind of peer has anything to ask here.
func Serves(k Kind) bool {
	return slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.callers&Caller{Kind: k}.kind() != 0 })
}

// admit reports why a caller may not ask this.
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

// capabilities are those that a gateway has.
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

// message is one document whose reader is elsewhere, and has the bounds of its fields.
type message = json.RawMessage
