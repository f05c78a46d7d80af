package auth

import (
	"context"
	"fmt"
	"log/slog"
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

// Auth outside the tunnel: the same server, for callers that no overlay address makes known
// but a bearer token. Whoever has no good one gets one and the same answer, and is not told
// why. What the table marks as outside is there, and nothing else: tickets are redeemed in their tunnels, and paths and
// reports are about tunnels.

const (
	// strangerRate and strangerBurst bound the answers to whoever has no good token, per
	// address: the next get 429. Those with one are not bounded by it, for behind an
	// Ingress all have one address.
	strangerRate  = rate.Limit(1)
	strangerBurst = 20
	// maxStrangers bounds how many addresses are remembered; beyond it they share one bound.
	maxStrangers = 4096
	// ipv6Site is what one IPv6 user has at least.
	ipv6Site = 64
	// ipv6Most is what one has at most (RFC 6177). Connections go by it: those who share it lose
	// nothing until all are taken.
	ipv6Most = 48
	// outsideHeaderTimeout is short, for strangers hold connections for so long at no cost.
	outsideHeaderTimeout = 2 * time.Second
)

// OutOfBand is the http.Handler for callers outside the tunnel. It is safe for concurrent
// use.
type OutOfBand struct {
	server *Server
	tokens *DirectTokens

	mu        sync.Mutex
	strangers map[netip.Prefix]*rate.Limiter
	swept     time.Time
}

// OutOfBand makes the handler that knows callers by tokens.
func (s *Server) OutOfBand(tokens *DirectTokens) *OutOfBand {
	return &OutOfBand{server: s, tokens: tokens, strangers: map[netip.Prefix]*rate.Limiter{}}
}

// Serve answers on ln until ctx ends, as Server.Serve does.
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

// stranger answers whoever has no good token.
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

// limiter is that of an address's network.
func (o *OutOfBand) limiter(a netip.Addr, now time.Time) *rate.Limiter {
	site := network(a, ipv6Site)
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.swept) > forgetAfter {
		o.swept = now
		for k, l := range o.strangers {
			if l.TokensAt(now) >= strangerBurst {
				delete(o.strangers, k)
			}
		}
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

// bearer is the request's token (RFC 6750 §2.1); empty when it has none.
func bearer(r *http.Request) Token {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return Token(strings.TrimSpace(token))
}
