package lab

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
)

// keys are faults of keys and tickets.
func keys() []Scenario {
	return []Scenario{pskMismatch(), wrongKey(), duplicateKey(), ticketUsed()}
}

func pskMismatch() Scenario {
	return Scenario{Name: "psk-mismatch", Summary: "the two have different preshared keys: each other's handshakes do not verify",
		fault: &fault{
			slip: func(_ context.Context, l *Lab) (string, error) {
				for _, s := range l.pair() {
					file, err := s.presharedKey()
					if err != nil {
						return "", err
					}
					if err := s.know(func(p *api.Peer) { p.PresharedKeyFile = file }); err != nil {
						return "", err
					}
				}
				return "each side made a preshared key of its own", nil
			},
			cloud: codes(catalogue.PresharedKeyDiffers), edge: codes(catalogue.PresharedKeyDiffers),
			fix: func(ctx context.Context, l *Lab) (string, error) {
				same := l.Cloud.other.PresharedKeyFile
				return "cloud's preshared key was copied to edge", l.Edge.learn(ctx, func(p *api.Peer) { p.PresharedKeyFile = same })
			},
		}}
}

func wrongKey() Scenario {
	return Scenario{Name: "wrong-key", Summary: "edge has a wrong public key of cloud: each sees handshakes that are not for it",
		fault: &fault{
			slip: func(_ context.Context, l *Lab) (string, error) {
				other, err := peer.NewPrivateKey()
				if err != nil {
					return "", err
				}
				return "edge's file has a public key that is not cloud's", l.Edge.know(func(p *api.Peer) { p.PublicKey = other.Public().String() })
			},
			cloud: codes(catalogue.WrongPeerKey), edge: codes(catalogue.WrongPeerKey),
			fix: func(ctx context.Context, l *Lab) (string, error) {
				right := l.Cloud.key.Public().String()
				return fmt.Sprintf("at edge: spec.peers[name=cloud].publicKey: %s, and reload", right), l.Edge.learn(ctx, func(p *api.Peer) { p.PublicKey = right })
			},
		}}
}

func duplicateKey() Scenario {
	return Scenario{Name: "duplicate-key", Summary: "a copy of edge's gateway runs elsewhere with the same key: the two take turns",
		fault: &fault{
			harm: func(ctx context.Context, l *Lab) (string, error) {
				host, err := l.Internet.AddHost(simnet.HostOptions{Name: "copy", Addrs: []netip.Addr{copyAddr}, Link: line()})
				if err != nil {
					return "", err
				}
				double, err := l.newSite(ctx, host, l.Edge.key, "default")
				if err != nil {
					return "", err
				}
				l.others = append(l.others, double)
				l.fault.double = double
				return fmt.Sprintf("somebody restored a backup of edge at %s and started it", copyAddr),
					double.learn(ctx, func(p *api.Peer) { *p = l.Edge.other })
			},
			cloud: codes(catalogue.DuplicateKey), edge: codes(catalogue.KeyElsewhere), turns: true,
			fix: func(_ context.Context, l *Lab) (string, error) {
				return "the copy was stopped", l.fault.double.halt()
			},
			stays: codes(catalogue.DuplicateKey), stay: "cloud remembers for five minutes that two took turns",
		}}
}

func ticketUsed() Scenario {
	return Scenario{Name: "ticket-used", Summary: "a ticket that edge redeemed is tried by somebody else: an alarm at cloud",
		fault: &fault{
			byTicket: true,
			harm: func(ctx context.Context, l *Lab) (string, error) {
				thief, err := l.AddSite(ctx, simnet.HostOptions{Name: "stranger", Addrs: []netip.Addr{copyAddr}, Link: line()})
				if err != nil {
					return "", err
				}
				answer, err := thief.Gateway.Join(ctx, l.joinRequest())
				if err == nil {
					return "", fmt.Errorf("a second gateway joined with the same ticket: %s", answer.Outcome)
				}
				return fmt.Sprintf("a stranger at %s tried edge's ticket: %v", copyAddr, err), nil
			},
			cloud: codes(catalogue.TicketAlarm), edge: codes(),
			fix: func(context.Context, *Lab) (string, error) {
				return "edge's owner was asked and says that it joined: whoever else had the ticket came too late, and nothing is to be removed", nil
			},
			stays: codes(catalogue.TicketAlarm), stay: "cloud shows the alarm for an hour more; the next ticket goes another way, or is made with --approve",
		}}
}
