package forward

import (
	"context"
	"log/slog"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/check"
)

// refuse resets a connection, counts it and says so where somebody should know.
func (in *Inbound) refuse(c Incoming, p Peer, s Service, reason Reason, err error) {
	in.count.refuse(reason)
	c.Refuse()
	suppressed, ok := in.logs.allow(string(reason) + " " + p.Name + " " + s.Name)
	if !ok {
		return
	}
	params := check.Params{Peer: p.Name, Service: s.Name, Upstream: s.Upstream, Timeout: upstreamTimeout}
	switch reason {
	case UnknownPeer, NoService, NotGranted:
		in.opts.Audit.Record(context.Background(), audit.Refuse, audit.Peer(p.Name),
			slog.String(audit.KeyService, s.Name), slog.String(audit.KeyAddress, c.Remote().String()),
			slog.String("local", c.Local().String()), slog.String(audit.KeyCode, string(check.NotGranted)),
			audit.Reason(denial(reason)), slog.Uint64("suppressed", suppressed))
	case UpstreamDown:
		params.Detail = err.Error()
		in.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "upstream cannot be reached, connection refused",
			warning(DirectionInbound, upstreamCode(err), params, suppressed)...)
	case PeerFlowLimit, PeerHalfOpenLimit, TotalFlowLimit:
		code, limit := limitCode(reason, in.flows.limits)
		params.Limit = limit
		in.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "too many connections, connection refused",
			warning(DirectionInbound, code, params, suppressed)...)
	}
}

// denial says in words why something was not granted.
func denial(r Reason) string {
	switch r {
	case UnknownPeer:
		return "its source address belongs to no peer"
	case NoService:
		return "no service listens there"
	}
	return "it is not granted to this peer"
}

// limitCode gives the code of a limit and its value.
func limitCode(r Reason, l Limits) (check.Code, int) {
	switch r {
	case PeerFlowLimit:
		return check.PeerFlowLimit, l.PeerFlows
	case PeerHalfOpenLimit:
		return check.PeerHalfOpenLimit, l.HalfOpen
	}
	return check.TotalFlowLimit, l.Total
}

// warning is what every warning carries: its code, what it is about, cause and fix.
func warning(direction string, code check.Code, p check.Params, suppressed uint64) []slog.Attr {
	cause, fix := check.Render(code, p)
	attrs := []slog.Attr{slog.String("code", string(code)), slog.String("direction", direction),
		slog.String("peer", p.Peer), slog.String("service", p.Service)}
	for _, a := range []slog.Attr{slog.String("upstream", p.Upstream), slog.String("address", p.Address),
		slog.String("error", p.Detail)} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	attrs = append(attrs, slog.String("cause", cause), slog.String("fix", fix))
	if suppressed > 0 {
		attrs = append(attrs, slog.Uint64("suppressed", suppressed))
	}
	return attrs
}

func orDiscard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
