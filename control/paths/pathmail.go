package paths

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/mail"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

// pathMailRoom is how many messages of the path finder wait for one peer. Each names all
// candidates, and a punch that is late has failed.
const pathMailRoom = 8

// newMail hands what the path finder has to say to its peers' path finders.
func (p *Finder) newMail() *mail.Sender[path.Message] {
	return mail.New(mail.Options[path.Message]{
		Ctx: p.o.Ctx, Room: pathMailRoom,
		Urgent: func(m path.Message) bool { return m.Punch != nil }, // it has its time
		Hand: func(ctx context.Context, to peer.PublicKey, m path.Message) error {
			body, err := json.Marshal(m)
			if err != nil {
				return fmt.Errorf("write a message about paths: %w", err)
			}
			return auth.NewClient(peer.OverlayAddr(to), p.plane.Stack.DialContext).Path(ctx, body)
		},
		Failed: func(to peer.PublicKey, err error) {
			p.log.Debug("a message about paths was not delivered", "peer", p.peers.NameOf(to), "error", err)
		},
	})
}
