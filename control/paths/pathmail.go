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

// pathMailRoom is how many path messages may wait for one peer. Each lists all candidates, and a
// late punch is a failed one.
const pathMailRoom = 8

// newMail returns the sender of path messages to peers.
func (p *Finder) newMail() *mail.Sender[path.Message] {
	return mail.New(mail.Options[path.Message]{
		Ctx: p.o.Ctx, Room: pathMailRoom,
		Urgent: func(m path.Message) bool { return m.Punch != nil }, // it is timed
		Hand: func(ctx context.Context, to peer.PublicKey, m path.Message) error {
			body, err := json.Marshal(m)
			if err != nil {
				return fmt.Errorf("write a message about paths: %w", err)
			}
			return auth.NewClient(peer.OverlayAddr(to), p.plane.Stack.DialContext).Path(ctx, body)
		},
		Failed: func(to peer.PublicKey, err error) {
			p.log.Debug("failed to deliver a path message", "peer", p.peers.NameOf(to), "error", err)
		},
	})
}
