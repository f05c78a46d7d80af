//go:build linux && e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/testenv/qrscan"
)

// TestActingOnTheScreen does everything that the screen can do, each to its effect in the gateway.
func TestActingOnTheScreen(t *testing.T) {
	t.Parallel()
	p := newPair(t, newWorld(t))
	cloud, edge := newTerminal(t, p.cloud, 120, 40), newTerminal(t, p.edge, 120, 40)
	for _, term := range []*terminal{cloud, edge} {
		term.run("postern tui")
		term.await("nobody yet", "[1 Overview]", "no peers yet")
	}

	// Join by a ticket that wants approval, and approve.
	edge.acts("join "+p.cloud.invite("--approve", "--allow", api.ServiceAPIServer), "join cloud", "registered with cloud")
	cloud.await("edge waits", "▸ edge", "◇ pending")
	cloud.press("a")
	cloud.await("what can be done", "1  let it in")
	cloud.press("1")
	cloud.confirms("approve edge", "approved edge")
	p.cloud.waitConnected("edge")
	cloud.await("it is in", "● connected")

	cloud.acts("allow edge auth", "allow edge", "edge may reach here: auth")
	if got, _ := p.cloud.peer("edge"); !slices.Equal(got.Allow, []string{api.ServiceAuth}) {
		t.Errorf("edge may reach %q, want auth", got.Allow)
	}
	cloud.run(":ping edge")
	cloud.await("an echo", "ping edge: ", " ms")
	cloud.run(":probe edge")
	cloud.await("a check", "checked edge: ")

	was := p.cloud.status().Gateway.PublicKey
	cloud.acts("rotate", "rotate the key", "the key is now")
	p.edge.waitPeer("cloud", "with another key", func(s api.PeerStatus) bool {
		return s.PublicKey != was && s.State == api.StateConnected
	})

	for _, side := range []struct {
		term        *terminal
		at          *gateway
		peer, first string
	}{{cloud, p.cloud, "edge", "● connected"}, {edge, p.edge, "cloud", "PST0116"}} {
		// What a screen saw before the rotation is of another key, and is not removed.
		side.term.await("the peer as it is now", side.first)
		side.term.acts("remove "+side.peer, "remove "+side.peer, "removed "+side.peer)
		if _, there := side.at.peer(side.peer); there {
			t.Errorf("%s is a peer still", side.peer)
		}
	}

	// A ticket that is made on the screen, and redeemed as it stands there.
	made := cloud.confirmed("invite site apiServer", "invite a gateway", "at the other gateway, before")
	made = cloud.shows("the same as a QR code", func(s string) bool {
		scanned, err := qrscan.Scan(s)
		return err == nil && strings.EqualFold(scanned, ticket.Find(made[strings.LastIndex(made, ticket.Prefix):]))
	})
	cloud.press("c")
	cloud.await("it is copied", "copied the ticket")
	edge.acts("join "+ticket.Find(made[strings.LastIndex(made, ticket.Prefix):]), "join cloud", "joined cloud; may reach there: apiServer")
	p.cloud.waitConnected("site")
	cloud.dismisses("invite a gateway")

	cloud.press("b")
	cloud.await("what to group by", "1  state")
	cloud.press("1")
	cloud.await("a group", "▼ ● connected · 1 peer")
	cloud.run(":theme mine")
	cloud.await("there is no such theme", `no theme is called "mine"`)
	cloud.leaves()

	cloud.run("clear; postern tui --read-only")
	cloud.await("the screen again", "site", "● connected")
	cloud.run(":remove site")
	cloud.await("the question", "$ postern peer remove site", "read-only")
	cloud.press("y")
	cloud.dismisses("remove site")
	cloud.leaves()
	if _, there := p.cloud.peer("site"); !there {
		t.Error("a screen that only shows has removed a peer")
	}
}

// dismisses ends a question, before anything else is typed: escape and a letter at once would be another key.
func (term *terminal) dismisses(question string) {
	term.t.Helper()
	term.press("Escape")
	term.awaitGone("the question is away", "─ "+question)
}

// acts types a command, confirms what it asks and waits for what comes of it, and leaves.
func (term *terminal) acts(command, question, outcome string) {
	term.t.Helper()
	term.run(":" + command)
	term.confirms(question, outcome)
}

// confirmed leaves the outcome on the screen.
func (term *terminal) confirmed(command, question, outcome string) string {
	term.t.Helper()
	term.run(":" + command)
	return term.asked(question, outcome)
}

// confirms answers a question that is there, and leaves.
func (term *terminal) confirms(question, outcome string) {
	term.t.Helper()
	term.asked(question, outcome)
	term.dismisses(question)
}

func (term *terminal) asked(question, outcome string) string {
	term.t.Helper()
	term.await("the question", "─ "+question, "y do it")
	term.press("y")
	return term.await("what came of it", "✓ ", outcome)
}
