package enrol

import (
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/tunnel/peer"
)

// announced returns the announced candidates that may be dialled. A peer must not make us send to
// what is ours or only means something here: loopback, link-local (including cloud metadata
// services), multicast, the overlay and this host's own addresses. If those are unknown, no
// candidate is trusted: such a peer can still dial us.
func (e *Registrar) announced(list []ticket.Candidate) []ticket.Candidate {
	own, err := e.o.OwnAddrs()
	if err != nil {
		e.log.Warn("not dialling announced candidates: this host's addresses are unknown", "error", err)
		return nil
	}
	forbidden := e.o.Peers.Config().Discovery.Exclude
	var out []ticket.Candidate
	for _, c := range list {
		if why := discovery.Dialable(c.Addr, own, forbidden); why != "" {
			e.log.Debug("not dialling an announced candidate", "address", c.Addr.String(), "reason", why)
			continue
		}
		out = append(out, ticket.Candidate{Addr: netip.AddrPortFrom(c.Addr.Addr().Unmap(), c.Addr.Port()), Source: c.Source})
	}
	return out
}

// invited returns the candidates of a ticket. Its issuer is trusted with more than a stranger (for
// example, two gateways on one host), except for addresses that no host can have.
func invited(list []ticket.Candidate) []ticket.Candidate {
	return slices.DeleteFunc(slices.Clone(list), func(c ticket.Candidate) bool {
		return unreachableElsewhere(c.Addr.Addr().Unmap())
	})
}

func unreachableElsewhere(a netip.Addr) bool {
	return !a.IsValid() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || peer.OverlayPrefix.Contains(a)
}

func shown(list []ticket.Candidate) []api.Candidate {
	out := make([]api.Candidate, 0, len(list))
	for _, c := range list {
		out = append(out, api.Candidate{Address: c.Addr.String(), Source: c.Source})
	}
	return out
}

func candidateText(list []ticket.Candidate) string {
	if len(list) == 0 {
		return "any address, for it announced none"
	}
	text := ""
	for i, c := range list {
		if i > 0 {
			text += ", "
		}
		text += c.Addr.String()
	}
	return text
}
