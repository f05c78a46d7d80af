package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/catalogue"
)

// errManyWait: an address, or all together, have too many flows that are not admitted yet.
var errManyWait = errors.New("too many connections wait already to be admitted")

// admits returns why a client may not use the listener; nil if it may. Nothing is read from the
// client and nothing dialled for it before that.
func (o *Outbound) admits(w Local, by api.Protocol, remote string) error {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return fmt.Errorf("its address %q cannot be read: %w", remote, err)
	}
	return o.opts.Admit(w, by, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
}

// admitted reports whether a connection may use the listener and has a place. If not, it counts the
// refusal, and logs it if an operator should know.
func (o *Outbound) admitted(w Local, f *flow) bool {
	if o.opts.Admit == nil {
		return true
	}
	err := o.admits(w, api.TCP, f.remote)
	reason := Stopping // it has ended already
	if f.ctx.Err() == nil {
		if err != nil {
			o.notAdmitted(w, o.count, f.remote, err)
			return false
		}
		if reason = o.flows.admitted(f); reason == "" {
			return true
		}
	}
	o.refused(w, reason, f.remote, nil)
	return false
}

// notAdmitted counts a client that is not admitted, writes the audit record and logs it.
func (o *Outbound) notAdmitted(w Local, c *counters, remote string, why error) {
	o.flows.refuse(c, DirectionOutbound, w.Peer, w.Service, NotAdmitted)
	from, _ := netip.ParseAddrPort(remote) // admits has read it
	o.opts.Audit.Record(context.Background(), audit.Refuse, audit.Peer(w.Peer),
		slog.String(audit.KeyService, w.Service), slog.String(audit.KeyAddress, remote),
		slog.String(audit.KeyCode, string(catalogue.PodRefused)), audit.Reason(why.Error()))
	p := catalogue.Params{Peer: w.Peer, Service: w.Service, Detail: why.Error()}
	p.From = from.Addr().String()
	if attrs := warning(DirectionOutbound, catalogue.PodRefused, p); c == o.udp {
		o.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "local datagrams are not admitted, dropped", attrs...)
	} else {
		o.opts.Logger.LogAttrs(context.Background(), slog.LevelWarn, "local connection is not admitted, reset", attrs...)
	}
}
