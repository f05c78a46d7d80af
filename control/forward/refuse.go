package forward

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/catalogue"
)

// refuse resets a connection, counts it and logs the reason.
func (in *Inbound) refuse(c Incoming, p Peer, s Service, reason Reason, err error) {
	in.flows.refuse(in.count, DirectionInbound, p.Name, s.Name, reason)
	c.Refuse()
	in.tell(refusal{c.Remote(), c.Local(), p, s, reason, err, in.flows.limitsNow().tcp(classOf(s.Name))})
}

// refusal is why a peer's connection or datagram is not forwarded.
type refusal struct {
	remote, local netip.AddrPort
	peer          Peer
	service       Service
	reason        Reason
	err           error
	bounds        bounds // if it is because of them
}

// tell writes a refusal to the audit log or, if an operator should know about it, to the log, which
// bounds how often (package logtail).
func (in *Inbound) tell(r refusal) {
	p, s, reason, err := r.peer, r.service, r.reason, r.err
	params := catalogue.Params{Peer: p.Name, Service: s.Name, Upstream: s.Upstream, Timeout: upstreamTimeout}
	switch reason {
	case UnknownPeer, NoService, NotGranted:
		in.opts.Audit.Record(context.Background(), audit.Refuse, audit.Peer(p.Name),
			slog.String(audit.KeyService, s.Name), slog.String(audit.KeyAddress, r.remote.String()),
			slog.String("local", r.local.String()), slog.String(audit.KeyCode, string(catalogue.NotGranted)),
			audit.Reason(denial(reason)))
	case UpstreamDown, NoneReady:
		code := catalogue.NoBackendReady
		if reason == UpstreamDown {
			params.Detail = catalogue.Reason(err)
			why, ofCluster := upstreamCode(err), classOf(s.Name) == workload
			if dial, ok := errors.AsType[*net.OpError](err); ok && ofCluster && dial.Addr != nil {
				params.Upstream = dial.Addr.String()
			}
			if ofCluster && why != catalogue.SocketsUsedUp { // that is no backend's fault
				params.Failure = backendFailures[why]
			} else {
				code = why
			}
		}
		in.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "upstream cannot be reached, connection refused",
			warning(DirectionInbound, code, params)...)
	case PeerFlowLimit, PeerHalfOpenLimit, TotalFlowLimit, PeerRateLimit:
		code, limit := limitCode(reason, r.bounds)
		params.Limit, params.Failure = limit, r.bounds.limit
		in.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "too many connections, connection refused",
			warning(DirectionInbound, code, params)...)
	}
}

// backendFailures say how a backend of a service of this cluster failed.
var backendFailures = map[catalogue.Code]catalogue.Failure{
	catalogue.UpstreamRefused: catalogue.FailureRefused, catalogue.UpstreamTimeout: catalogue.FailureTimeout,
	catalogue.UpstreamUnreachable: catalogue.FailureRoute, catalogue.UpstreamName: catalogue.FailureRoute,
}

// denial describes why something was not granted.
func denial(r Reason) string {
	switch r {
	case UnknownPeer:
		return "its source address belongs to no peer"
	case NoService:
		return "no service listens there"
	}
	return "it is not granted to this peer"
}

// limitCode returns the code of a limit and its value.
func limitCode(r Reason, b bounds) (catalogue.Code, int) {
	switch r {
	case PeerFlowLimit:
		return catalogue.PeerFlowLimit, b.peer
	case PeerHalfOpenLimit:
		return catalogue.PeerHalfOpenLimit, b.halfOpen
	case ClientLimit:
		return catalogue.ClientLimit, b.peer
	case PeerRateLimit:
		return catalogue.PeerRateLimit, b.rate
	}
	return catalogue.TotalFlowLimit, b.total
}

// warning returns the attributes of every warning: its code, its subject, cause and fix.
func warning(direction string, code catalogue.Code, p catalogue.Params) []slog.Attr {
	attrs := []slog.Attr{slog.String("code", string(code)), slog.String("direction", direction),
		slog.String("peer", p.Peer), slog.String("service", p.Service)}
	for _, a := range []slog.Attr{slog.String("upstream", p.Upstream), slog.String(audit.KeyAddress, p.Address),
		slog.String("error", p.Detail)} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	return append(attrs, slog.Any("", advice{code, p}))
}

// advice is the cause and the fix of a warning, which are only rendered if it is written.
type advice struct {
	code   catalogue.Code
	params catalogue.Params
}

// LogValue implements slog.LogValuer.
func (a advice) LogValue() slog.Value {
	cause, fix := catalogue.Render(a.code, a.params)
	return slog.GroupValue(slog.String("cause", cause), slog.String("fix", fix.String()))
}
