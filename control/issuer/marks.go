package issuer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/report"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Grants, services and capabilities change here, and accounts are deleted, but a peer may not ask
// for minutes: it continues with what it last heard, and with a dead token. So each report has two
// marks, one of what the peer is offered and one of what its identity depends on, and a report is
// sent when either changes. The peer then asks for the rest.

// Incarnations is an optional interface of an [auth.Issuer] whose identities can end early.
type Incarnations interface {
	// Incarnation identifies what the peer's identity depends on now, empty if there is nothing;
	// known is false while that is unknown.
	Incarnation(s auth.Subject) (id string, known bool)
}

// OffersMark is the mark of the parts of a hello's answer that a peer acts on: services and
// capabilities.
func (s *Service) OffersMark(m *roster.Member) report.Mark {
	c, ok := s.Caller(peer.OverlayAddr(m.Key))
	if !ok {
		return ""
	}
	offers, ports := s.Offers(c), s.ports()
	slices.Sort(offers)
	parts := append(make([]string, 0, len(offers)+2), "can "+strings.Join(s.server.Capabilities(), " "))
	for _, name := range offers {
		parts = append(parts, fmt.Sprintf("%s %s", name, ports[name]))
	}
	if a := s.peers.Config().Services.APIServer; a != nil && slices.Contains(offers, api.ServiceAPIServer) {
		parts = append(parts, a.ServerName+" "+string(s.caMark.of(a.CAData)))
	}
	return report.MarkOf(parts...)
}

// lastMark caches the mark of a long text that is the same for all peers. It is safe for concurrent
// use.
type lastMark struct{ last atomic.Pointer[markedText] }

type markedText struct {
	text []byte
	mark report.Mark
}

// of returns the mark of a text, which must not change afterwards.
func (l *lastMark) of(text []byte) report.Mark {
	m := l.last.Load()
	if m == nil || !bytes.Equal(m.text, text) {
		m = &markedText{text, report.MarkOf(string(text))}
		l.last.Store(m)
	}
	return m.mark
}

// IdentityMark is the mark of what a peer's identity depends on: the issuer and, if that has one,
// the account.
func (s *Service) IdentityMark(m *roster.Member) report.Mark {
	issuer := *s.issuer.Load()
	if issuer == nil || m.Stock || m.Pending || !slices.Contains(m.Allow, api.ServiceAuth) || !slices.Contains(m.Allow, api.ServiceAPIServer) {
		return ""
	}
	i, ok := issuer.(Incarnations)
	if !ok {
		return report.MarkOf(fmt.Sprintf("%T", issuer))
	}
	switch id, known := i.Incarnation(m.Subject()); {
	case !known:
		return ""
	case id == "":
		return report.NoIdentity
	default:
		return report.MarkOf(id)
	}
}
