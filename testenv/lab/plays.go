package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// dialWait is how long edge tries to reach an inviter whose firewall blocks it.
const dialWait = 3 * time.Second

// directFromTheStart meets without a relay.
func (l *Lab) directFromTheStart() []step {
	return append(l.meet(), l.direct(), l.verified())
}

// relayThenDirect meets over the relay, and shows the change to a direct path.
func (l *Lab) relayThenDirect() []step { return l.directFromTheStart() }

// orderedPunching shows how to open two NATs that an unsolicited datagram would poison.
func (l *Lab) orderedPunching() []step {
	return append(l.meet(),
		step{"proposed", "one side proposes to punch, over the relay", func(ctx context.Context) (string, error) {
			return l.awaitEvent(ctx, "punching", true)
		}},
		step{"punched", "each opens its NAT by datagrams that die before the other's, then both probe", func(ctx context.Context) (string, error) {
			return l.awaitEvent(ctx, "punched", false)
		}},
		l.direct(), l.verified())
}

// relayStays shows a pair that cannot have a direct path.
func (l *Lab) relayStays() []step {
	return append(l.meet(),
		step{"why", "both find out that no direct path can be had", func(ctx context.Context) (string, error) {
			all, err := l.awaitBoth(ctx, func(p api.PeerStatus) string {
				if p.Path.Kind != api.PathRelay || heldBack(p).Reason == "" {
					return pathText(p.Path) + ", and no candidate is held back for its NAT's sake"
				}
				return ""
			})
			var why []string
			for _, s := range all {
				for _, p := range s.Peers {
					c := heldBack(p)
					why = append(why, fmt.Sprintf("%s does not try %s's %s: %s", s.Gateway.Name, p.Name, c.Address, c.Reason))
				}
			}
			return strings.Join(why, "; "), err
		}},
		step{"relayed", "the transfer goes on", func(ctx context.Context) (string, error) {
			if err := l.load.transfer.flows(ctx); err != nil {
				return "", err
			}
			return l.pathsAre(ctx, api.PathRelay)
		}},
		l.verified())
}

// heldBack returns an address of the peer that is not tried because of the NATs; the zero value
// if there is none.
func heldBack(p api.PeerStatus) api.Candidate {
	for _, c := range p.Candidates {
		if c.State == "frozen" && strings.Contains(c.Reason, "another port for each destination") {
			return c
		}
	}
	return api.Candidate{}
}

// oneWay makes the inviter dial, because it cannot be dialled.
func (l *Lab) oneWay() []step {
	var reply string
	steps := []step{l.invite(), {"join", "edge dials cloud, whose firewall drops it", func(ctx context.Context) (string, error) {
		r := l.joinRequest()
		r.Wait = api.Duration(dialWait)
		answer, err := l.Edge.Gateway.Join(ctx, r)
		if err == nil && answer.Outcome != api.JoinReply {
			err = fmt.Errorf("ended as %q, though cloud lets nothing in", answer.Outcome)
		}
		reply = answer.Reply
		return fmt.Sprintf("no answer within %s, so edge made a reply of %d characters for cloud", dialWait, len(reply)), err
	}}, {"accept", "cloud accepts the reply and dials edge", func(ctx context.Context) (string, error) {
		r, err := l.Cloud.Gateway.Accept(ctx, api.AcceptRequest{Reply: reply, Wait: api.Duration(l.stepLimit())})
		if err == nil && !r.Connected {
			err = errors.New(r.Reason)
		}
		return "cloud dialled edge, and its firewall lets the answers in", err
	}}, {"connected", "both wait for an authenticated answer", func(ctx context.Context) (string, error) {
		return l.pathsAre(ctx, api.PathDirect)
	}}}
	return append(steps, l.apiServers()...)
}

// sameNetwork meets behind one NAT.
func (l *Lab) sameNetwork() []step {
	inside := netip.PrefixFrom(edgeAddr, 24)
	near := step{"host", "both wait until the path stays on their own network", func(ctx context.Context) (string, error) {
		all, err := l.awaitBoth(ctx, func(p api.PeerStatus) string {
			if at, err := netip.ParseAddrPort(p.Path.Remote); err != nil || !inside.Contains(at.Addr()) {
				return pathText(p.Path)
			}
			return ""
		})
		return paths(all) + "; nothing goes through the NAT", err
	}}
	return append(l.meet(), near, l.verified())
}

// meet makes edge join cloud, and starts the transfer as soon as there is a path.
func (l *Lab) meet() []step {
	var steps []step
	if l.scenario.tested {
		steps = append(steps, step{"NATs", "both ask a STUN server with two addresses what their NATs let in", l.awaitNATs})
	}
	return append(steps, l.invite(),
		step{"join", "edge redeems the ticket", func(ctx context.Context) (string, error) {
			return "edge redeemed it and switched to its own key", l.join(ctx)
		}},
		step{"connected", "both wait for an authenticated answer", l.awaitMet},
		step{"transfer", "a client of edge begins a transfer with a service of cloud", l.beginTransfer})
}

// awaitMet waits until there is a path.
func (l *Lab) awaitMet(ctx context.Context) (string, error) {
	all, err := l.awaitBoth(ctx, func(p api.PeerStatus) string {
		if p.State != api.StateConnected || p.Path.Kind == api.PathNone {
			return fmt.Sprintf("%s, %s", p.State, pathText(p.Path))
		}
		return ""
	})
	return paths(all), err
}

func (l *Lab) awaitNATs(ctx context.Context) (string, error) {
	var text []string
	err := poll(ctx, func() (string, error) {
		all, err := l.Statuses(ctx)
		text = nil
		for _, s := range all {
			n := s.Gateway.NAT
			if n.Mapping == "unknown" || n.Filtering == "unknown" {
				return s.Gateway.Name + " does not know its NAT", nil
			}
			text = append(text, fmt.Sprintf("%s: %s mapping, %s filtering", s.Gateway.Name, n.Mapping, n.Filtering))
		}
		return "", err
	})
	if len(text) == 2 && strings.TrimPrefix(text[0], "cloud") == strings.TrimPrefix(text[1], "edge") {
		text = []string{"both" + strings.TrimPrefix(text[0], "cloud")}
	}
	return strings.Join(text, "; "), err
}

// beginTransfer waits until bytes flow through edge's local listener.
func (l *Lab) beginTransfer(ctx context.Context) (string, error) {
	address := ""
	err := poll(ctx, func() (string, error) {
		st, err := l.Edge.Gateway.Status(ctx)
		if err != nil {
			return "", err
		}
		for _, p := range st.Peers {
			for _, local := range p.Local {
				if local.Service == echoService && local.Error == "" {
					address = local.Address
					return "", nil
				}
			}
		}
		return "edge has no listener for cloud's service " + echoService, nil
	})
	if err != nil {
		return "", err
	}
	l.load.transfer = startTransfer(address)
	err = l.load.transfer.flows(ctx)
	l.load.transfer.measure() // without the time that the start took
	return fmt.Sprintf("bytes flow through %s at edge to cloud and back", address), err
}

// direct waits for direct paths.
func (l *Lab) direct() step {
	return step{"direct", "both look for a direct path under the transfer", func(ctx context.Context) (string, error) {
		text, err := l.pathsAre(ctx, api.PathDirect)
		if err == nil {
			err = l.load.transfer.flows(ctx)
		}
		return fmt.Sprintf("%s; the transfer never paused for more than %s", text, ms(l.load.transfer.longest())), err
	}}
}

// verified ends the transfer.
func (l *Lab) verified() step {
	return step{"verified", "the transfer ends", func(context.Context) (string, error) {
		err := l.load.transfer.Close()
		n, connections, _ := l.load.transfer.progress()
		over := "one connection"
		if connections > 1 {
			over = fmt.Sprintf("%d connections, one after the other", connections)
		}
		return fmt.Sprintf("%.1f MB to cloud and back over %s, every byte as it was sent", float64(n)/1e6, over), err
	}}
}

// pathsAre waits until both paths are of a kind.
func (l *Lab) pathsAre(ctx context.Context, kind string) (string, error) {
	all, err := l.awaitBoth(ctx, func(p api.PeerStatus) string {
		if p.State != api.StateConnected || p.Path.Kind != kind {
			return fmt.Sprintf("%s, %s", p.State, pathText(p.Path))
		}
		return ""
	})
	return paths(all), err
}

// awaitEvent waits until the history of the path has an event, at both gateways or at one, and
// returns the event and its time since the beginning of the history.
func (l *Lab) awaitEvent(ctx context.Context, event string, both bool) (string, error) {
	var seen []string
	err := poll(ctx, func() (string, error) {
		all, err := l.Statuses(ctx)
		seen = nil
		for _, s := range all {
			for _, p := range s.Peers {
				i := slices.IndexFunc(p.Path.History, func(e api.PathEvent) bool { return e.Event == event })
				if i >= 0 {
					e := p.Path.History[i]
					after := e.At.Sub(p.Path.History[0].At)
					seen = append(seen, fmt.Sprintf("%s, %s after its first path: %s", s.Gateway.Name, ms(after), e.Reason))
				}
			}
		}
		if len(seen) == 0 || both && len(seen) < 2 {
			return "no gateway has noted \"" + event + "\"", err
		}
		return "", err
	})
	return strings.Join(seen, "; "), err
}

// paths says how each gateway reaches the other.
func paths(all []api.Status) string {
	var text []string
	for _, s := range all {
		for _, p := range s.Peers {
			text = append(text, fmt.Sprintf("%s → %s: %s", s.Gateway.Name, p.Name, pathText(p.Path)))
		}
	}
	return strings.Join(text, "; ")
}

func pathText(p api.Path) string {
	switch p.Kind {
	case api.PathDirect:
		return "direct at " + p.Remote
	case api.PathRelay:
		if p.Relay != "" {
			return fmt.Sprintf("by the relay %s to %s", p.Relay, p.Remote)
		}
		return "by the relay at " + p.Remote
	default:
		return strings.TrimSuffix("no path: "+p.Reason, ": ")
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
