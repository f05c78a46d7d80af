package forward

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/catalogue"
)

// admits returns why a client may not use the listener; nil if it may. Nothing is read from the
// client and nothing dialled for it before that.
func (o *Outbound) admits(w Local, remote string) error {
	if o.opts.Admit == nil {
		return nil
	}
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return fmt.Errorf("its address %q cannot be read: %w", remote, err)
	}
	return o.opts.Admit(w, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
}

// turnAway resets a connection that is not admitted, counts it, and logs it if an operator should
// know.
func (o *Outbound) turnAway(w Local, f *flow, why error) {
	if f.ctx.Err() != nil { // it has ended already
		o.refused(w, Stopping, nil)
		return
	}
	f.abort()
	o.flows.refuse(o.count, DirectionOutbound, w.Peer, w.Service, NotAdmitted)
	o.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "local connection is not admitted, reset", o.notAdmitted(w, f.remote, why)...)
}

// notAdmitted writes the audit record of a client that is not admitted, and returns the attributes
// of a warning.
func (o *Outbound) notAdmitted(w Local, remote string, why error) []slog.Attr {
	from, _ := netip.ParseAddrPort(remote) // admits has read it
	o.opts.Audit.Record(context.Background(), audit.Refuse, audit.Peer(w.Peer),
		slog.String(audit.KeyService, w.Service), slog.String(audit.KeyAddress, remote),
		slog.String(audit.KeyCode, string(catalogue.PodRefused)), audit.Reason(why.Error()))
	p := catalogue.Params{Peer: w.Peer, Service: w.Service, Detail: why.Error()}
	p.From = from.Addr().String()
	return warning(DirectionOutbound, catalogue.PodRefused, p)
}
