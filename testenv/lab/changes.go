package lab

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/simnet"
)

// pathLost cuts the direct path during the transfer, and fixes it later.
func (l *Lab) pathLost() []step {
	return append(l.meet(), l.direct(),
		step{"cut", "", func(context.Context) (string, error) {
			l.load.transfer.measure()
			l.Cloud.Host.Link().SetFirewall(simnet.Firewall{Drop: func(d simnet.Datagram, _ bool) bool {
				return d.Src.Addr() == natAddr || d.Dst.Addr() == natAddr
			}})
			return fmt.Sprintf("from now on everything between %s and %s is lost; the relay can be reached", cloudAddr, natAddr), nil
		}},
		step{"relay", "both notice, and go over to the relay", func(ctx context.Context) (string, error) {
			return l.recovers(ctx, func(ctx context.Context) (string, error) { return l.pathsAre(ctx, api.PathRelay) })
		}},
		step{"fix", "", func(context.Context) (string, error) {
			l.load.transfer.measure()
			l.Cloud.Host.Link().SetFirewall(simnet.Firewall{})
			return "nothing is lost any more", nil
		}},
		step{"direct again", "both find that the direct path works", func(ctx context.Context) (string, error) {
			return l.recovers(ctx, func(ctx context.Context) (string, error) { return l.pathsAre(ctx, api.PathDirect) })
		}},
		l.verified())
}

// natReboot makes the NAT forget its mappings during the transfer.
func (l *Lab) natReboot() []step {
	var before string
	return append(l.meet(), l.direct(),
		step{"reboot", "", func(ctx context.Context) (string, error) {
			st, err := l.Cloud.Gateway.Status(ctx)
			if err != nil {
				return "", err
			}
			before = st.Peers[0].Path.Remote
			l.load.transfer.measure()
			l.NAT.Reboot()
			return fmt.Sprintf("edge's NAT forgot its mappings; cloud sends to %s, where nobody listens any more", before), nil
		}},
		step{"moved", "cloud finds edge where it comes from now", func(ctx context.Context) (string, error) {
			return l.recovers(ctx, func(ctx context.Context) (string, error) {
				all, err := l.awaitBoth(ctx, func(p api.PeerStatus) string {
					at, err := netip.ParseAddrPort(p.Path.Remote)
					if err != nil || p.Path.Kind != api.PathDirect || at.String() == before {
						return pathText(p.Path)
					}
					return ""
				})
				return paths(all), err
			})
		}},
		l.verified())
}

// restart stops cloud's gateway during the transfer and starts it again with its state directory.
func (l *Lab) restart() []step {
	return append(l.meet(), l.direct(),
		step{"stop", "", func(context.Context) (string, error) {
			l.load.transfer.measure()
			return "cloud's gateway is gone; it waited for no connection", l.Cloud.halt()
		}},
		step{"start", "", func(ctx context.Context) (string, error) {
			return "it runs again, with its key and its peer from the state directory", l.Cloud.Start(ctx)
		}},
		step{"resumed", "both make a new session; the client connects again", func(ctx context.Context) (string, error) {
			return l.recovers(ctx, func(ctx context.Context) (string, error) { return l.pathsAre(ctx, api.PathDirect) })
		}},
		l.verified())
}

// recovers waits for a state in which the transfer continues, and says how long the transfer
// paused.
func (l *Lab) recovers(ctx context.Context, state func(context.Context) (string, error)) (string, error) {
	start := time.Now()
	text, err := state(ctx)
	took := time.Since(start)
	if err == nil {
		err = l.load.transfer.flows(ctx)
	}
	return fmt.Sprintf("%s after %.1f s; the transfer paused for %s", text, took.Seconds(), ms(l.load.transfer.longest())), err
}
