package auth

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Auth outside the tunnel: the same server, for callers that are identified by a bearer token and
// not by an overlay address. Without a valid token every caller gets the same answer, without a
// reason. Only what the table marks as outside is available: tickets are redeemed in their tunnels,
// and paths and reports are about tunnels.

const (
	// strangerRate and strangerBurst bound the answers to callers without a valid token, per
	// address: the next ones get 429. Callers with one are not bounded by it, since behind an
	// Ingress all have one address.
	strangerRate  = rate.Limit(1)
	strangerBurst = 20
	// maxStrangers bounds the stored addresses; beyond it they share one limit.
	maxStrangers = 4096
	// ipv6Site is the least that one IPv6 user has.
	ipv6Site = 64
	// ipv6Most is the most that one has (RFC 6177). Connections are limited by it: those who share
	// it lose nothing until all are taken.
	ipv6Most = 48
	// outsideHeaderTimeout is short, since strangers can hold connections that long at no cost.
	outsideHeaderTimeout = 2 * time.Second
)

// OutOfBand is the http.Handler for callers outside the tunnel. It is safe for concurrent use.
type OutOfBand struct {
	server *Server
	tokens *DirectTokens

	mu        sync.Mutex
	strangers map[netip.Prefix]*rate.Limiter
	swept     time.Time
}

// OutOfBand returns the handler that identifies callers by token.
func (s *Server) OutOfBand(tokens *DirectTokens) *OutOfBand {
	return &OutOfBand{server: s, tokens: tokens, strangers: map[netip.Prefix]*rate.Limiter{}}
}

// Serve serves ln until ctx ends, like Server.Serve.
func (o *OutOfBand) Serve(ctx context.Context, ln net.Listener) error {
	return o.server.serveHTTP(ctx, ln, o, bounds{
		header: outsideHeaderTimeout,
		whose:  func(a netip.Addr) netip.Prefix { return network(a, ipv6Most) },
	})
}

// ServeHTTP answers one request.
func (o *OutOfBand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(VersionHeader, ProtocolVersion)
	token, err := o.tokens.check(bearer(r), time.Now())
	from := peer.OverlayAddr(token.key)
	caller, known := Caller{}, false
	if err == nil {
		caller, known = o.server.o.Directory.Caller(from)
		known = known && caller.Kind == KindPeer && caller.PublicKey == token.key
		if known && token.precedes(caller.NotBefore) {
			known, err = false, fmt.Errorf("%w: it is older than the peer, which was removed and came again", errDirectToken)
		}
	}
	if !known {
		o.stranger(w, r, err)
		return
	}
	o.server.answer(&call{Caller: caller, from: from, outside: true, w: w, r: r})
}

// stranger answers callers without a valid token.
func (o *OutOfBand) stranger(w http.ResponseWriter, r *http.Request, why error) {
	addr := remoteAddr(r.RemoteAddr)
	if !o.limiter(addr, time.Now()).Allow() {
		w.Header().Set("Connection", "close")
		e := limited(time.Second)
		o.server.count(e.Code)
		writeJSON(w, e.Status, errorBody{spoken: speaks, Code: e.Code, Message: e.Message})
		return
	}
	o.server.count(codeUnauthorized)
	reason := "the token's peer is none of ours"
	if why != nil {
		reason = why.Error()
	}
	o.server.o.Logger.LogAttrs(r.Context(), slog.LevelDebug, "rejected a request outside the tunnel: bad token",
		slog.String(audit.KeyAddress, addr.String()), slog.String("reason", reason))
	w.Header().Set("WWW-Authenticate", "Bearer")
	w.Header().Set("Connection", "close")
	e := newError(codeUnauthorized, messageUnauthorized)
	writeJSON(w, e.Status, errorBody{spoken: speaks, Code: e.Code, Message: e.Message})
}

// limiter returns the one of an address's network.
func (o *OutOfBand) limiter(a netip.Addr, now time.Time) *rate.Limiter {
	site := network(a, ipv6Site)
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.swept) > forgetAfter {
		o.swept = now
		maps.DeleteFunc(o.strangers, func(_ netip.Prefix, l *rate.Limiter) bool { return l.TokensAt(now) >= strangerBurst })
	}
	if o.strangers[site] == nil && len(o.strangers) >= maxStrangers {
		site = netip.Prefix{}
	}
	l := o.strangers[site]
	if l == nil {
		l = rate.NewLimiter(strangerRate, strangerBurst)
		o.strangers[site] = l
	}
	return l
}

// bearer returns the request's token (RFC 6750 §2.1); empty if it has none.
func bearer(r *http.Request) Token {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return Token(strings.TrimSpace(token))
}
