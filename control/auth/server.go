package auth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Time limits of a connection. A peer is at the other end of a tunnel with a round trip below a
// second; bodies are small.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 15 * time.Second
	writeTimeout   = 40 * time.Second
	idleTimeout    = 30 * time.Second
	handlerTimeout = 20 * time.Second
	drainTimeout   = 2 * time.Second
	maxHeaderBytes = 8 << 10
	// hostBits: each overlay address is a separate peer.
	hostBits = 128
)

// Kind is the kind of a caller.
type Kind int

// Kinds of callers.
const (
	KindPeer    Kind = iota
	KindOneTime      // the one-time peer of an open ticket
	KindStock        // a plain WireGuard peer
)

// Caller is the owner of an overlay address.
type Caller struct {
	// Name is our name for the peer; empty for a one-time peer.
	Name string
	// Identity is its identity name; empty means Name.
	Identity  string
	PublicKey peer.PublicKey
	Kind      Kind
	// Grants are the local services that it may reach.
	Grants []string
	// Pending: its key has yet to be approved.
	Pending bool
	// NotBefore is when it became a peer here: older tokens are invalid. Zero if unknown.
	NotBefore time.Time
}

func (c Caller) subject() Subject {
	return Subject{Name: c.Name, Identity: c.Identity, PublicKey: c.PublicKey}
}

func (c Caller) may(service string) bool { return slices.Contains(c.Grants, service) }

// Directory knows the current owner of an overlay address.
type Directory interface {
	Caller(netip.Addr) (Caller, bool)
}

// Redeemer makes a peer of a joiner: it asks the ticket book and adds the granted peer to the
// tunnel. Calls may repeat. The book's errors are sent to the joiner, others are not.
type Redeemer interface {
	Redeem(ctx context.Context, oneTime peer.PublicKey, q ticket.Request) (ticket.Grant, error)
}

// ServerOptions configure a Server.
type ServerOptions struct {
	// Name is the gateway's, Software its build.
	Name, Software string
	Directory      Directory
	// Redeemer may be nil: no tickets.
	Redeemer Redeemer
	// Issuer returns the current issuer; it may be nil or return nil: no identities.
	Issuer func() Issuer
	// APIServer returns what to tell those who may reach it; it may be nil or return nil.
	APIServer func() *APIServer
	// Offers filters a caller's grants to the services that exist here; nil: all.
	Offers func(Caller) []string
	// Ports returns the overlay ports of the named services; nil: none. A caller is told those that
	// it is offered.
	Ports func() map[string]api.Ports
	// OnPath handles a path message from a peer, one JSON document, and must not block. The peer
	// gets an error as a bad request. nil: not supported.
	OnPath func(from peer.PublicKey, message []byte) error
	// OnReport handles a peer's report, one JSON document of at most MaxReport bytes, and must not
	// block. The peer gets an error as a bad request. nil: not supported.
	OnReport func(from peer.PublicKey, report []byte) error
	// Report returns the report to send with the answer to a peer's hello, one JSON document of at
	// most MaxReport bytes, and must not block. It may be nil or return nil.
	Report func(to peer.PublicKey) []byte
	// HeardBoot returns the number of a peer's start that counts, and must not block. It may be nil
	// or return 0: none.
	HeardBoot func(of peer.PublicKey) uint64
	// OnServices handles a part of a peer's catalogue of services, one JSON document of at most
	// mcs.MaxMessage bytes, returns the version that is now complete, and must not block. The peer
	// gets an error as a bad request. nil: not supported.
	OnServices func(from peer.PublicKey, message []byte) (has string, err error)
	// OnRotation handles a peer's next key, whose proof it has to check; the answer is sent once it
	// is stored. The peer gets an [ErrConfigured] or an [ErrRequest] with its text. nil: not
	// supported.
	OnRotation func(ctx context.Context, a Announcement) error
	// Audit and Logger may be nil.
	Audit  *audit.Log
	Logger *slog.Logger
}

// Server answers peers. It is an http.Handler and safe for concurrent use.
type Server struct {
	o      ServerOptions
	limits *limits
	// offered returns its current capabilities.
	offered func() []string

	mu        sync.Mutex
	decisions map[string]uint64
}

// NewServer returns a server.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Directory == nil {
		return nil, errors.New("auth server: no directory")
	}
	if err := api.CheckName(o.Name); err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Server{o: o, limits: newLimits(), decisions: map[string]uint64{resultOK: 0}}
	s.offered = func() []string { return capabilities(endpoints, s) }
	for _, r := range refusals {
		s.decisions[r.code] = 0
	}
	return s, nil
}

// Capabilities returns those that peers are told.
func (s *Server) Capabilities() []string { return s.offered() }

// Decisions counts answers by result: "ok" or an error's code. All results are present from the
// start.
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

// Serve serves ln until ctx ends, then lets requests finish for 2 s. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	return s.serveHTTP(ctx, ln, s, bounds{conns: peerConns, whose: s.whose, header: headerTimeout})
}

// whose identifies the connections of one caller, from any of its addresses, and those of all
// strangers.
func (s *Server) whose(a netip.Addr) netip.Prefix {
	c, known := s.o.Directory.Caller(a)
	if !known || c.Kind == KindStock {
		return netip.Prefix{}
	}
	return network(peer.OverlayAddr(c.PublicKey), hostBits)
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
		// Otherwise the library answers OPTIONS * itself: anyone, at any rate.
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext:                  withConn,
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

// call is a request in progress.
type call struct {
	Caller
	// from is the caller's overlay address.
	from netip.Addr
	// outside: it came from outside the tunnel.
	outside bool
	// endpoint is the requested one; nil before that is known.
	endpoint *endpoint
	// begun: its handler is running.
	begun bool
	w     http.ResponseWriter
	r     *http.Request
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(VersionHeader, ProtocolVersion)
	c := &call{from: remoteAddr(r.RemoteAddr), w: w, r: r}
	known := false
	if c.Caller, known = s.o.Directory.Caller(c.from); known {
		s.answer(c)
		return
	}
	if wait := spend(s.limits.unknown, time.Now()); wait > 0 {
		w.Header().Set("Connection", "close")
		s.fail(c, limited(wait))
		return
	}
	s.fail(c, newError(codeUnknownPeer, messageUnknownPeer))
}

// answer answers a known caller.
func (s *Server) answer(c *call) {
	if c.Kind == KindPeer && !c.Pending {
		proveConn(c.r, c.PublicKey)
	}
	body, err := s.serve(c)
	if err != nil {
		s.fail(c, err)
		return
	}
	s.count(resultOK)
	if body != nil { // otherwise it is answered
		writeJSON(c.w, http.StatusOK, body)
	}
}

// serve applies the table to a request, and then calls the handler.
func (s *Server) serve(c *call) (any, error) {
	allowance := s.limits.of(c.owner(), time.Now())
	unknown := c.find()
	if wait := s.limits.arrive(allowance, c, time.Now()); wait > 0 {
		return nil, limited(wait)
	}
	if v := c.r.Header.Get(VersionHeader); v != "" {
		if err := checkVersion(v, "the caller"); err != nil {
			return nil, err
		}
	}
	if unknown != nil {
		return nil, unknown
	}
	e := c.endpoint
	if err := e.admit(c.Caller); err != nil {
		return nil, err
	}
	if e.has != nil && !e.has(s) {
		return nil, e.missing
	}
	if !s.limits.enter(c.r.Context(), allowance) {
		busy := newError(codeBusy, "too many requests at a time")
		busy.RetryAfter = retryAfterBusy
		return nil, busy
	}
	defer s.limits.leave(allowance)
	ctx, cancel := context.WithTimeout(c.r.Context(), handlerTimeout)
	defer cancel()
	q, err := c.read()
	if err != nil {
		return nil, err
	}
	if wait := s.limits.charge(allowance, c, time.Now()); wait > 0 {
		return nil, limited(wait)
	}
	c.begun = true
	return e.do(ctx, s, c, q)
}

// find looks up a request in the table.
func (c *call) find() error {
	e, methods := lookup(c.r.Method, c.r.URL.Path)
	switch {
	case e == nil && len(methods) > 0:
		allow := strings.Join(methods, ", ")
		c.w.Header().Set("Allow", allow)
		return newError(codeMethod, "use "+allow)
	case e == nil:
		return newError(codeNotFound, "no such path")
	case c.outside && !e.outside:
		return newError(codeNotFound, "no such path outside the tunnel")
	}
	c.endpoint = e
	return nil
}

// read returns the request's message, or lets the handler read what is not a message.
func (c *call) read() (any, error) {
	e := c.endpoint
	tooLarge := newError(codeTooLarge, fmt.Sprintf("the body is larger than %d bytes", e.body))
	if c.r.ContentLength > int64(e.body) && e.body > 0 {
		return nil, tooLarge
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, int64(e.body))
	if !e.isMessage() {
		return reflect.Zero(e.request).Interface(), nil
	}
	body, err := io.ReadAll(c.r.Body)
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case err != nil:
		return nil, newError(codeBadRequest, "the body did not arrive whole")
	}
	return e.parse(body, e.body)
}

// fail answers with an error, counts it, and audits it if the caller asked for something that it
// may not have.
func (s *Server) fail(c *call, err error) {
	answer, internal := answerFor(err)
	s.count(answer.Code)
	attrs := []slog.Attr{
		audit.Peer(c.Name), audit.PublicKey(c.PublicKey),
		slog.String(audit.KeyAddress, remoteAddr(c.r.RemoteAddr).String()),
		slog.String(audit.KeyRequest, requested(c.r)),
	}
	ctx := c.r.Context()
	switch e := c.endpoint; {
	case internal:
		s.o.Logger.LogAttrs(ctx, slog.LevelError, "in-band request failed", append(attrs, slog.Any("error", err))...)
	case answer.Status != http.StatusForbidden || c.begun && e.records:
		s.o.Logger.LogAttrs(ctx, slog.LevelDebug, "in-band request refused", append(attrs, slog.String("result", answer.Code))...)
	default:
		event := audit.Refuse // of a stranger
		if e != nil {
			event = e.refusal
		}
		s.o.Audit.Record(ctx, event, append(attrs, slog.String("result", answer.Code), audit.Reason(clean(err.Error(), maxMessage)))...)
	}
	if answer.RetryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(answer.RetryAfter.Seconds()))))
	}
	writeJSON(c.w, answer.Status, errorBody{spoken: speaks, Code: answer.Code, Message: answer.Message})
}

// requested describes a request for the log. A path that is not in the table is untrusted text that
// nobody needs.
func requested(r *http.Request) string {
	e, methods := lookup(r.Method, r.URL.Path)
	switch {
	case e != nil:
		return e.method + " " + e.path
	case len(methods) > 0:
		return "? " + r.URL.Path
	}
	return "?"
}

type errorBody struct {
	spoken
	Code    string `json:"code" max:"64"`
	Message string `json:"message" max:"2048"`
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
	_ = json.NewEncoder(w).Encode(body) // if it fails the peer has gone
}
