package auth

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Time limits of a connection. A peer is on the other end of a tunnel whose round trip
// is below a second; bodies are small.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 15 * time.Second
	writeTimeout   = 40 * time.Second
	idleTimeout    = 30 * time.Second
	handlerTimeout = 20 * time.Second
	drainTimeout   = 2 * time.Second
	maxHeaderBytes = 8 << 10
	// hostBits: each overlay address is a peer of its own.
	hostBits = 128
)

// Kind says what a caller is.
type Kind int

// Kinds of callers.
const (
	KindPeer    Kind = iota
	KindOneTime      // the one-time peer of an open ticket
)

// Caller is who an overlay address belongs to.
type Caller struct {
	// Name is what the peer is called here; empty for a one-time peer.
	Name      string
	PublicKey peer.PublicKey
	Kind      Kind
	// Grants are the services here that it may reach.
	Grants []string
	// Pending: its key has yet to be approved.
	Pending bool
	// NotBefore is when it became a peer here: tokens made before are not good. Zero where
	// that is not known.
	NotBefore time.Time
}

func (c Caller) may(service string) bool { return slices.Contains(c.Grants, service) }

// Directory knows whom an overlay address belongs to, at this moment.
type Directory interface {
	Caller(netip.Addr) (Caller, bool)
}

// Redeemer makes a peer of a joiner: it asks the ticket book and puts the peer that the
// book grants into the tunnel. It may be asked for the same again. The book's errors
// are told to the joiner, others are not.
type Redeemer interface {
	Redeem(ctx context.Context, oneTime peer.PublicKey, q ticket.Request) (ticket.Grant, error)
}

// ServerOptions say what a server serves.
type ServerOptions struct {
	// Name is the gateway's, Software its build.
	Name, Software string
	Directory      Directory
	// Redeemer may be nil: no tickets.
	Redeemer Redeemer
	// Issuer gives the issuer in force, and may be nil or give nil: no identities.
	Issuer func() Issuer
	// APIServer gives what to tell those who may reach it, and may be nil or give nil.
	APIServer func() *APIServer
	// Offers filters a caller's grants to those services that exist here; nil: all.
	Offers func(Caller) []string
	// Ports gives the overlay TCP ports of the named services; nil: there are none. A
	// caller is told of those that it is offered.
	Ports func() map[string]uint16
	// OnPath takes a message of a peer's path finder, one JSON document, and must not
	// block. An error is told to the peer as a bad request. nil: paths are not found here.
	OnPath func(from peer.PublicKey, message []byte) error
	// OnReport takes a peer's report, one JSON document of at most MaxReport bytes, and
	// must not block. An error is told to the peer as a bad request. nil: reports are not
	// taken here.
	OnReport func(from peer.PublicKey, report []byte) error
	// Report gives the report that goes with the answer to a peer's hello, one JSON
	// document of at most MaxReport bytes, and must not block. It may be nil or give nil.
	Report func(to peer.PublicKey) []byte
	// HeardBoot gives the highest number of a start that was heard of a peer, and must not
	// block. It may be nil or give 0: none was.
	HeardBoot func(of peer.PublicKey) uint64
	// OnRotation takes the key that a peer will have, whose proof it has to check; the answer is sent when it is stored. An [ErrConfigured] and an [ErrRequest] are
	// told to the peer, with their text. nil: keys are not taken here.
	OnRotation func(ctx context.Context, a Announcement) error
	// Audit and Logger may be nil.
	Audit  *audit.Log
	Logger *slog.Logger
}

// Server answers peers. It is an http.Handler and safe for concurrent use.
type Server struct {
	o      ServerOptions
	limits *limits

	mu        sync.Mutex
	decisions map[string]uint64
}

// NewServer makes a server.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Directory == nil {
		return nil, errors.New("auth server: no directory")
	}
	if err := api.CheckName(o.Name); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, limits: newLimits(), decisions: map[string]uint64{resultOK: 0}}
	for _, r := range refusals {
		s.decisions[r.code] = 0
	}
	return s, nil
}

// Decisions counts answers by result: "ok" or an error's code. All results are there
// from the start.
func (s *Server) Decisions() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.decisions)
}

func (s *Server) count(result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decisions[result]++
}

// Serve answers on ln until ctx ends, then lets requests finish for 2 s. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	return s.serveHTTP(ctx, ln, s, bounds{conns: peerConns, ipv6: hostBits, header: headerTimeout})
}

func (s *Server) serveHTTP(ctx context.Context, ln net.Listener, h http.Handler, b bounds) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: b.header,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	stopped := make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-served:
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
	}()
	err := srv.Serve(newBoundedListener(ln, b))
	close(served)
	<-stopped
	if ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(VersionHeader, ProtocolVersion)
	from := remoteAddr(r.RemoteAddr)
	caller, known := s.o.Directory.Caller(from)
	if !known {
		s.fail(w, r, caller, newError(codeUnknownPeer, messageUnknownPeer))
		return
	}
	s.answer(w, r, from, caller)
}

// answer answers a caller that is known; from is its overlay address.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, from netip.Addr, caller Caller) {
	allowance := s.limits.of(caller.PublicKey, time.Now())
	if wait := spend(allowance.requests, time.Now()); wait > 0 {
		s.fail(w, r, caller, limited(wait))
		return
	}
	if !s.limits.enter(r.Context(), allowance) {
		e := newError(codeBusy, "too many requests at a time")
		e.RetryAfter = retryAfterBusy
		s.fail(w, r, caller, e)
		return
	}
	defer s.limits.leave(allowance)
	ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout)
	defer cancel()
	body, err := s.route(ctx, w, r, from, caller, allowance)
	if err != nil {
		s.fail(w, r, caller, err)
		return
	}
	s.count(resultOK)
	if body != nil { // else it is answered
		writeJSON(w, http.StatusOK, body)
	}
}

// route finds the handler. Every path tells a wrong method from a wrong path.
func (s *Server) route(ctx context.Context, w http.ResponseWriter, r *http.Request, from netip.Addr, caller Caller, a *allowance) (any, error) {
	if v := r.Header.Get(VersionHeader); v != "" {
		if err := checkVersion(v, "the caller"); err != nil {
			return nil, err
		}
	}
	method := http.MethodPost
	if r.URL.Path == HelloPath || r.URL.Path == pathThroughput && r.Method == http.MethodGet {
		method = http.MethodGet
	}
	switch r.URL.Path {
	case HelloPath, pathRedeem, pathIdentity, pathPath, pathReport, pathThroughput, pathRotation:
		if r.Method != method {
			w.Header().Set("Allow", method)
			return nil, newError(codeMethod, "use "+method)
		}
	default:
		return nil, newError(codeNotFound, "no such path")
	}
	if r.URL.Path == pathThroughput {
		return s.throughput(w, r, caller, a)
	}
	r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
	switch r.URL.Path {
	case HelloPath:
		return s.hello(caller), nil
	case pathRedeem:
		return s.redeem(ctx, r, caller)
	case pathPath:
		return s.path(r, caller)
	case pathReport:
		return s.report(r, caller, a)
	case pathRotation:
		return s.rotation(ctx, r, caller, a)
	default:
		return s.identity(ctx, r, from, caller, a)
	}
}

// fail answers with an error, counts it, and records it if somebody asked for what is
// not theirs.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, caller Caller, err error) {
	answer, internal := answerFor(err)
	s.count(answer.Code)
	attrs := []slog.Attr{
		audit.Peer(caller.Name), audit.PublicKey(caller.PublicKey),
		slog.String(audit.KeyAddress, remoteAddr(r.RemoteAddr).String()),
		slog.String(audit.KeyRequest, requested(r)),
	}
	switch {
	case internal:
		s.o.Logger.LogAttrs(r.Context(), slog.LevelError, "in-band request failed", append(attrs, slog.Any("error", err))...)
	case answer.Status == http.StatusForbidden && r.URL.Path != pathRedeem: // the book records its own
		s.o.Audit.Record(r.Context(), audit.Refuse, append(attrs, slog.String("result", answer.Code), audit.Reason(answer.Message))...)
	default:
		s.o.Logger.LogAttrs(r.Context(), slog.LevelDebug, "in-band request refused", append(attrs, slog.String("result", answer.Code))...)
	}
	if answer.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(answer.RetryAfter.Seconds()))))
	}
	writeJSON(w, answer.Status, errorBody{Version: ProtocolVersion, Code: answer.Code, Message: answer.Message})
}

// requested is a request's line for the log. A path that is none of ours is a stranger's
// text, and nobody needs it.
func requested(r *http.Request) string {
	method, path := "?", "?"
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead:
		method = r.Method
	}
	switch r.URL.Path {
	case HelloPath, pathRedeem, pathIdentity, pathPath, pathReport, pathThroughput, pathRotation:
		path = r.URL.Path
	}
	return method + " " + path
}

type errorBody struct {
	Version string `json:"version"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func limited(wait time.Duration) *Error {
	e := newError(codeRateLimited, "too many requests; come back later")
	e.RetryAfter = min(wait, maxRetryAfter)
	return e
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the peer has gone if it fails
}

// readJSON reads exactly one JSON document.
func readJSON(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	err := dec.Decode(into)
	if err == nil {
		var more json.RawMessage
		if err = dec.Decode(&more); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("more than one document")
		}
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return newError(codeTooLarge, "the body is larger than "+strconv.Itoa(MaxBody)+" bytes")
	}
	return newError(codeBadRequest, "the body is not the JSON that is wanted here: "+clean(err.Error(), 120))
}
