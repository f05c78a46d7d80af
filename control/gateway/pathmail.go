package gateway

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

// newPathMail hands what the path finder has to say to its peers' path finders.
func newPathMail(g *Gateway) *mail.Sender[path.Message] {
	return mail.New(mail.Options[path.Message]{
		Ctx: g.ctx, Room: pathMailRoom,
		Urgent: func(m path.Message) bool { return m.Punch != nil }, // it has its time
		Hand: func(ctx context.Context, to peer.PublicKey, m path.Message) error {
			body, err := json.Marshal(m)
			if err != nil {
				return fmt.Errorf("write a message about paths: %w", err)
			}
			return auth.NewClient(peer.OverlayAddr(to), g.plane.Stack.DialContext).Path(ctx, body)
		},
		Failed: func(to peer.PublicKey, err error) {
			g.log.Debug("a message about paths was not delivered", "peer", g.nameOf(to), "error", err)
		},
	})
}

// nameOf is what the peer with the key is called here; its overlay address when it is
// gone.
func (g *Gateway) nameOf(k peer.PublicKey) string {
	if m := g.peers.Load().ByKey(k); m != nil {
		return m.Name
	}
	return peer.OverlayAddr(k).String()
}
