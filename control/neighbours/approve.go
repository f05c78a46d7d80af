package neighbours

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
)

// claim is what a discovered gateway says about itself.
type claim struct {
	name    foreign.Text
	key     peer.PublicKey
	problem foreign.Text // why it is unusable
}

// called reports whether an operator may mean it by a name: its own, as it is displayed, or the
// fingerprint of its key.
func (c claim) called(name string) bool {
	return c.name.RawUnsafe() == name || c.name.String() == name || !c.key.IsZero() && peer.Fingerprint(c.key) == name
}

// claims returns those of all discovered gateways.
func (n *Search) claims() []claim {
	var out []claim
	for _, i := range n.lan.found() {
		out = append(out, claim{i.Name, i.PublicKey, i.Err})
	}
	for _, m := range n.dns.matches(n.o.Peers.Load()) {
		c := claim{name: m.Name, key: m.Key}
		if !m.Usable() {
			c.problem = foreign.Of("its records are of no use")
			if len(m.Problems) > 0 {
				c.problem = foreign.Of(m.Problems[0].String())
			}
		}
		out = append(out, c)
	}
	return out
}

// DiscoveredApprove adds a discovered gateway as a peer: its key is pinned, and its addresses
// follow discovery. The other side has to do the same. The request has to contain the key: anyone
// can announce a name.
func (n *Search) DiscoveredApprove(ctx context.Context, name string, r api.DiscoveredApproveRequest) (api.DiscoveredApproveResponse, error) {
	if err := n.o.Peers.CheckServices("allow", r.Allow); err != nil {
		return api.DiscoveredApproveResponse{}, err
	}
	c, err := n.claimed(name, r.Fingerprint)
	if err != nil {
		return api.DiscoveredApproveResponse{}, err
	}
	fingerprint := peer.Fingerprint(c.key)
	called := cmp.Or(r.As, peerName(c.name.RawUnsafe()))
	switch m, otherKey := n.o.Peers.Load().Match(c.name.RawUnsafe(), c.key); {
	case m != nil && !otherKey:
		return api.DiscoveredApproveResponse{}, admin.Conflict(fmt.Sprintf("approve %s: it is peer %s already (fingerprint %s)", called, m.Name, fingerprint),
			"what it may reach here is set by `postern peer allow`")
	case m != nil && m.Name == called:
		return api.DiscoveredApproveResponse{}, admin.Conflict(fmt.Sprintf("approve %s: peer %s has another key (fingerprint %s) than the one found (%s)",
			called, m.Name, peer.Fingerprint(m.Key), fingerprint),
			"if they are two gateways give this one another name with --as NAME; if the key is new, remove the peer first")
	}
	if err := n.o.add(ctx, called, c, r.Allow, r.As != ""); err != nil {
		return api.DiscoveredApproveResponse{}, err
	}
	n.o.Peers.WantedAgain(c.key)
	return api.DiscoveredApproveResponse{Peer: called, PublicKey: c.key.String(), Fingerprint: fingerprint, User: n.o.UserOf(called)}, nil
}

// add adds a discovered gateway as a peer. chosen says that an operator gave the name.
func (o *Options) add(ctx context.Context, name string, c claim, allow []string, chosen bool) error {
	if err := api.CheckName(name); err != nil {
		return admin.Usage(fmt.Sprintf("approve %q: it cannot be a peer's name here: %v", c.name.Cut(maxShownName), err), "give it one with --as NAME")
	}
	return o.Peers.AddFound(ctx, name, c.key, allow, chosen)
}

// maxShownName bounds an untrusted name in a message, in characters.
const maxShownName = 63

// claimed returns the one discovered gateway with the name and the key's fingerprint. The
// fingerprint is required: others may use the name, too.
func (n *Search) claimed(name, fingerprint string) (claim, error) {
	var fit []claim
	var all, prints, wrong []string
	claims := n.claims()
	exact := slices.ContainsFunc(claims, func(c claim) bool { return c.called(name) })
	for _, c := range claims {
		all = append(all, c.name.String())
		if !c.called(name) && (exact || peerName(c.name.RawUnsafe()) != name) {
			continue
		}
		if !c.problem.IsZero() {
			wrong = append(wrong, c.problem.String())
			continue
		}
		print := peer.Fingerprint(c.key)
		if slices.Contains(prints, print) {
			continue
		}
		prints = append(prints, print)
		if fingerprint == print || fingerprint == c.key.String() {
			fit = append(fit, c)
		}
	}
	what := fmt.Sprintf("approve %.*q", maxShownName, name)
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(prints) > 0 && fingerprint == "":
		return claim{}, admin.Usage(what+": no fingerprint is given, and a name alone is no proof; found with this name: "+strings.Join(prints, ", "),
			"compare it with what `postern discover` shows of itself at the other gateway, then give it with --fingerprint")
	case len(prints) > 0:
		return claim{}, admin.Conflict(what+": the key found has the fingerprint "+strings.Join(prints, ", "),
			"compare it with what `postern discover` shows of itself at the other gateway, and trust no other")
	case len(wrong) > 0:
		return claim{}, admin.Conflict(what+": what it announces cannot be used: "+wrong[0], "")
	case n.lan.finder.Load() == nil && len(n.dns.domains()) == 0:
		return claim{}, admin.NotFound(what+": no peer of this name waits for approval, and gateways are not looked for",
			"set spec.discovery.lan: {enabled: true} to find those on the local network")
	}
	slices.Sort(all)
	hint := "found: " + strings.Join(slices.Compact(all), ", ")
	if len(all) == 0 {
		hint = "none was found: postern discover says why"
	}
	return claim{}, admin.NotFound(what+": no peer of this name waits for approval, and no gateway of this name was found", hint)
}
