package forward

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
)

// Datagram handles a datagram that a peer sent to the gateway's local address, and does not keep
// the payload. It returns false if nobody accepts the datagram; then the peer must be notified. It
// never blocks.
func (in *Inbound) Datagram(remote, local netip.AddrPort, payload []byte) bool {
	t, k := in.flows.udp, udpKey{remote, local.Port()}
	if t.fromPeer(k, payload) {
		return true
	}
	p, s, reason := in.authorize(api.UDP, remote, local)
	f := &udpFlow{key: k, service: s.Name, in: in, tally: in.flows.uses.tally(DirectionInbound, p.Name, s.Name)}
	ready := context.Background()
	if reason == "" {
		f.upstream, ready, reason = s.leads(p, local.Port())
	}
	if reason == "" {
		reason = t.begin(f, shareOfUDP(DirectionInbound, p.Name), func() { in.openUDP(f, p, s) })
	}
	if reason == "" && !in.stillAllowed(f.about()) { // since it was looked up
		f.end()
		reason = NotGranted
	}
	if reason == "" && ready.Err() != nil {
		f.end()
		reason = NoneReady
	}
	if reason != "" && reason != duplicate {
		in.flows.refuse(in.udp, DirectionInbound, p.Name, s.Name, reason)
		in.tell(refusal{remote, local, p, s, reason, nil, t.boundsOf(shareOfUDP(DirectionInbound, p.Name))})
		return false
	}
	return t.fromPeer(k, payload)
}

// leads returns the destination of a flow of datagrams, and until when it is valid. Datagrams do
// not show whether they arrive, so one backend is as good as another.
func (s Service) leads(p Peer, port uint16) (string, context.Context, Reason) {
	if s.Backends == nil {
		return s.upstream(port), context.Background(), ""
	}
	to := s.Backends.Pick(p.Name, int(port-s.Ports.First), nil)
	if !to.IsValid() {
		return "", nil, NoneReady
	}
	return to.String(), to.Ready, ""
}

// openUDP connects a flow to its upstream.
func (in *Inbound) openUDP(f *udpFlow, p Peer, s Service) {
	ctx, cancel := context.WithTimeout(f.table.ctx, upstreamTimeout)
	defer cancel()
	to, err := f.table.names.resolve(ctx, f.upstream)
	var side *socket
	if err == nil {
		side, err = in.connectUDP(f, to, s)
	}
	if err != nil {
		reason := UpstreamDown
		if f.table.ctx.Err() != nil {
			reason = Stopping
		}
		if f.end() {
			f.table.tunnel.RefuseUDP(netip.AddrPortFrom(f.table.own, f.key.port), f.key.remote)
		}
		in.flows.refuse(in.udp, DirectionInbound, p.Name, s.Name, reason)
		in.tell(refusal{f.key.remote, netip.AddrPortFrom(f.table.own, f.key.port), p, s, reason, err, bounds{}})
		return
	}
	if !f.table.opened(f, connected{side}) {
		return // removed, revoked, or refused at once
	}
	in.udp.accepted.Add(1)
	in.opts.Audit.Record(ctx, audit.Connect, audit.Peer(p.Name), slog.String(audit.KeyService, s.Name),
		slog.String(audit.KeyAddress, f.key.remote.String()), slog.String("protocol", string(api.UDP)))
}

// connectUDP opens a flow's socket. One to a backend does not have the address of a client that is
// still remembered: a listener of this gateway would take the flow's datagrams for that client's.
func (in *Inbound) connectUDP(f *udpFlow, to netip.AddrPort, s Service) (*socket, error) {
	for range 2 { // by chance, but not twice
		side, err := f.table.sockets.dial(to, f)
		if err != nil || s.Backends == nil || !f.is(side.local()) {
			return side, err
		}
		side.close()
	}
	return nil, &net.OpError{Op: "dial", Net: "udp", Addr: net.UDPAddrFromAddrPort(to), Err: errLoop}
}

// upstreamRefused reports that an upstream has never answered.
func (in *Inbound) upstreamRefused(f *udpFlow) {
	in.flows.refuse(in.udp, DirectionInbound, f.owner.peer, f.service, UpstreamDown)
	in.tell(refusal{f.key.remote, netip.AddrPortFrom(f.table.own, f.key.port), Peer{Name: f.owner.peer},
		Service{Name: f.service, Upstream: f.upstream}, UpstreamDown,
		fmt.Errorf("send to %s: %w", f.upstream, syscall.ECONNREFUSED), bounds{}})
}

// disconnected records the end of a flow.
func (in *Inbound) disconnected(f *udpFlow) {
	in.opts.Audit.Record(context.Background(), audit.Disconnect, audit.Peer(f.owner.peer),
		slog.String(audit.KeyService, f.service), slog.String(audit.KeyAddress, f.key.remote.String()),
		slog.String("protocol", string(api.UDP)), slog.Uint64("rxBytes", f.rx), slog.Uint64("txBytes", f.tx),
		slog.Float64("seconds", time.Since(f.startedAt).Seconds()))
}

// resolve returns an address of host:port.
func (l *lookups) resolve(ctx context.Context, hostPort string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(hostPort); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
	}
	host, portText, err := net.SplitHostPort(hostPort)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("port of %s: %w", hostPort, err)
	}
	addrs, err := l.of(ctx, host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), uint16(port)), nil
}
