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

// Grants, services and capabilities change here, and accounts are deleted, while a peer may not ask for
// minutes: it goes on with what it has heard, and with a token that is dead. So each report to
// it has two marks, of what it is offered and of what its identity hangs on, and a report is
// posted when one of them changes. The peer asks for the rest itself.

// Incarnations reports an issuer whose identities can end before their time. An
// [auth.Issuer] may be one.
type Incarnations interface {
	// Incarnation is of what the peer's identity hangs on now, empty while there is nothing;
	// known is false so long as that is unknown.
	Incarnation(s auth.Subject) (id string, known bool)
}

// OffersMark is of what a peer is told in the answer to its hello that it acts on: services and
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

// lastMark keeps the mark of the text that it was last asked for: of what is the same for all
// peers, and long. It is safe for concurrent use.
type lastMark struct{ last atomic.Pointer[markedText] }

type markedText struct {
	text []byte
	mark report.Mark
}

// of returns the mark of a text, which is not to be changed afterwards.
func (l *lastMark) of(text []byte) report.Mark {
	m := l.last.Load()
	if m == nil || !bytes.Equal(m.text, text) {
		m = &markedText{text, report.MarkOf(string(text))}
		l.last.Store(m)
	}
	return m.mark
}

// IdentityMark is of what a peer's identity hangs on: the issuer, and where that knows of one
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
