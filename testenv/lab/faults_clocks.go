package lab

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/handshake"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// wasAhead is how far a clock was ahead before it was corrected: longer than anyone watches.
	wasAhead = time.Hour
	// ending is the remaining validity of an authority: long enough for it to issue an identity
	// on a slow machine.
	ending = time.Minute
)

// clocks are faults of clocks and expiry. All gateways of the lab use the machine's clock. What a
// second clock would cause is caused by its traces instead: a handshake with its timestamp, and
// an authority that expires soon.
func clocks() []Scenario {
	return []Scenario{
		{Name: "clock-back", Summary: "edge's clock was an hour ahead and was set right: cloud takes its handshakes for replays",
			fault: &fault{
				slip:  clockBack,
				cloud: codes(catalogue.StampInPast), edge: codes(catalogue.PeerSilent),
				fix: func(ctx context.Context, l *Lab) (string, error) {
					return "edge's clock is right; cloud was restarted, which remembers no stamps, or edge would have waited for an hour", l.Cloud.restart(ctx)
				},
			}},
		{Name: "identity-expired", Summary: "the authority ends by which cloud issues identities, and with it edge's",
			fault: &fault{
				slip: func(_ context.Context, l *Lab) (string, error) {
					return fmt.Sprintf("the CA of cloud's issuer (spec.services.auth.issuer.localCA) ends in %s", ending), l.Cloud.issueUntil(time.Now().Add(ending))
				},
				ripens: ending,
				cloud:  codes(catalogue.IdentityExpired), edge: codes(catalogue.IdentityExpired),
				fix: func(ctx context.Context, l *Lab) (string, error) {
					if err := l.Cloud.issueUntil(time.Now().Add(24 * time.Hour)); err != nil {
						return "", err
					}
					return "cloud's issuer got a new CA, which cloud's API server has in --client-ca-file; reload", l.Cloud.reload(ctx)
				},
			}},
	}
}

// clockBack restarts edge after it has sent a handshake with a timestamp in the future. Cloud's
// own handshakes are dropped: they would fix what edge's handshakes cannot.
func clockBack(ctx context.Context, l *Lab) (string, error) {
	if err := l.Edge.halt(); err != nil {
		return "", err
	}
	if err := l.Cloud.reload(ctx); err != nil { // it knows edge from now on
		return "", err
	}
	if err := l.Edge.greet(l.Cloud, time.Now().Add(wasAhead)); err != nil {
		return "", err
	}
	if _, err := l.Cloud.Gateway.Check(ctx, api.CheckRequest{}); err != nil { // it notes the timestamp
		return "", err
	}
	l.Edge.Host.Link().SetFirewall(simnet.Firewall{Drop: func(d simnet.Datagram, _ bool) bool {
		return d.Dst.Addr() == edgePublic && len(d.Payload) == device.MessageInitiationSize && d.Payload[0] == device.MessageInitiationType
	}})
	return fmt.Sprintf("edge's clock was %s ahead when it shook hands, and was set right; edge was started again, and a firewall drops what cloud begins", wasAhead),
		l.Edge.Start(ctx)
}

// greet sends the other gateway an initiation from this one's address, while this one is stopped,
// and waits for the response.
func (s *Site) greet(other *Site, stamp time.Time) error {
	ephemeral, err := peer.NewPrivateKey()
	if err != nil {
		return err
	}
	m, err := handshake.Initiation(s.key, ephemeral, other.key.Public(), stamp)
	if err != nil {
		return err
	}
	c, err := s.Host.ListenUDP(gatewayPort)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(defaultStepLimit)); err != nil {
		return err
	}
	to := netip.AddrPortFrom(other.Host.Addrs()[0], gatewayPort)
	if _, err := c.WriteToUDPAddrPort(m, to); err != nil {
		return fmt.Errorf("send a handshake to %s: %w", to, err)
	}
	var answer [1500]byte
	for answer[0] != device.MessageResponseType { // probes arrive, too
		if _, _, err := c.ReadFromUDPAddrPort(answer[:]); err != nil {
			return fmt.Errorf("wait for the answer of %s to a handshake: %w", to, err)
		}
	}
	return nil
}

// issueUntil gives the issuer an authority that expires and that the API server trusts.
func (s *Site) issueUntil(end time.Time) error {
	ca, err := pki.NewCABetween(time.Now().Add(-time.Hour), end, s.Name+"-peers-ca")
	if err != nil {
		return err
	}
	return s.issueBy(ca)
}
