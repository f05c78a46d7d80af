//go:build linux && e2e

package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

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
	cloud.await("the question", "─ approve edge", "y do it")
	cloud.dismisses("approve edge")
	cloud.acts("approve edge", "approve edge", "approved edge")
	p.cloud.waitConnected("edge")
	cloud.await("it is in", "● connected")

	cloud.acts("allow edge auth", "allow edge", "edge may reach here: auth")
	if got, _ := p.cloud.peer("edge"); !slices.Equal(got.Allow, []string{api.ServiceAuth}) {
		t.Errorf("edge may reach %q, want auth", got.Allow)
	}
	cloud.acts("undo", "allow edge", "edge may reach here: apiServer")
	got, _ := p.cloud.peer("edge")
	if !slices.Equal(got.Allow, []string{api.ServiceAPIServer}) {
		t.Errorf("edge may reach %q, want apiServer again", got.Allow)
	}
	cloud.run(":copy address")
	cloud.await("it is copied", "copied the address of edge")
	cloud.shows("the terminal was given the address", func(string) bool { // what was written is recorded by another process
		return strings.Contains(cloud.bytes(), ansi.SetSystemClipboard(got.Address))
	})
	cloud.acts("measure edge", "measure the path to edge", "bit/s from it")
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

	// A configuration on trial is kept.
	p.cloud.doc.Spec.Services.Named = nil
	p.cloud.writeConfig()
	p.cloud.must("config", "reload", "--confirm-within", "1h")
	cloud.await("a configuration is on trial", "on trial")
	cloud.acts("confirm", "keep the configuration", "the configuration stays")
	if at := p.cloud.status().Gateway.ConfigUndoneAt; at != nil {
		t.Errorf("the configuration is undone at %v, although it was confirmed", at)
	}

	// A gateway that nobody can reach dials by the reply of one that wants to join it.
	edge.acts("remove cloud", "remove cloud", "removed cloud")
	cloud.acts("remove site", "remove site", "removed site")
	reply := p.cloud.postern(within(t, patience), "join", p.edge.invite("--name", "site"), "--wait", "1s").stdout
	edge.acts(strings.TrimPrefix(strings.TrimSpace(reply), "postern "), "accept ", "connected to site")
	p.edge.waitConnected("site")
	cloud.await("the peer by the reply", "▸ edge")

	cloud.looks()
	cloud.commands = append(cloud.commands, edge.commands...)
	cloud.knowsNoOther()
	cloud.run(":quit")
	cloud.awaitShell()

	cloud.run("clear; postern tui --read-only")
	cloud.await("the screen again", "edge", "● connected")
	cloud.run(":remove edge")
	cloud.await("the question", "$ postern peer remove edge", "read-only")
	cloud.press("y")
	cloud.dismisses("remove edge")
	cloud.leaves()
	if _, there := p.cloud.peer("edge"); !there {
		t.Error("a screen that only shows has removed a peer")
	}
}

// looks does what changes nothing but the picture.
func (term *terminal) looks() {
	term.t.Helper()
	for _, c := range []struct{ command, shows string }{
		{"throughput", "[3 Throughput]"}, {"checks", "[4 Checks]"}, {"flows", "[5 Flows]"}, {"log", "[6 Log]"}, {"timeline", "[7 Timeline]"}, {"services", "[8 Services]"},
		{"peer edge", "[2 Peer]"}, {"overview", "[1 Overview]"},
		{"sort peer", "sorted by peer"}, {"group state", "▼ ● connected · 1 peer"}, {"group none", "by peer"},
		{"filter nobody", "the filter picks no peer"}, {"filter", "▸ edge"},
		{"wide", "←AUTH"}, {"wide", "→apg"}, {"mouse", "mouse off"},
		{"graph ascii", "* connected"}, {"graph braille", "● connected"}, {"theme mine", `no theme is called "mine"`}, {"help", "moving"},
	} {
		term.run(":" + c.command)
		term.await(":"+c.command, c.shows)
	}
	term.press("Escape")
	term.awaitGone("the keys are away", "moving")
	term.run(":freeze")
	term.await(":freeze", "= frozen")
	term.run(":freeze")
	term.awaitGone(":freeze again", "= frozen")
}

// knowsNoOther: every command of the palette was typed.
func (term *terminal) knowsNoOther() {
	term.t.Helper()
	term.resize(200, 60)
	term.press(":")
	_, listed, _ := strings.Cut(term.await("the palette", "─ commands", ":quit"), "─ commands")
	commands := regexp.MustCompile(`  :([a-z]+) `).FindAllStringSubmatch(listed, -1)
	if len(commands) < 20 {
		term.t.Errorf("the palette lists %d commands, want all of them", len(commands))
	}
	for _, m := range commands {
		if name := m[1]; name != "quit" && !slices.Contains(term.commands, name) {
			term.t.Errorf("nobody has tried :%s", name)
		}
	}
	term.press("Escape")
	term.awaitGone("the palette is away", "─ commands")
	term.resize(120, 40)
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
