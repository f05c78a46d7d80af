package screen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// Operator makes changes to a gateway. Every call ends with its context. The gateway decides
// whether it is permitted.
type Operator interface {
	PeerApprove(ctx context.Context, name string, r api.PeerApproveRequest) error
	PeerAllow(ctx context.Context, name string, r api.PeerAllowRequest) error
	PeerRemove(ctx context.Context, name string, force bool) error
	Invite(ctx context.Context, r api.InviteRequest) (api.InviteResponse, error)
	Join(ctx context.Context, r api.JoinRequest) (api.JoinResponse, error)
	Accept(ctx context.Context, r api.AcceptRequest) (api.AcceptResponse, error)
	KeyRotate(ctx context.Context, r api.KeyRotateRequest) (api.KeyRotateResponse, error)
	ConfigConfirm(ctx context.Context) error
}

// changeLimit bounds one change, and peersWait how long it waits for other gateways.
const changeLimit, peersWait = 45 * time.Second, 30 * time.Second

// change is a change to a gateway. It is shown before it is made.
type change struct {
	peer, key string // the peer and its public key; empty is the gateway itself
	title     string
	command   string   // the equivalent shell command
	effect    string   // its effect
	undoes    *allowed // by an earlier change
	do        func(ctx context.Context, o Operator) (outcome, error)
}

// outcome is the result of a change.
type outcome struct {
	said string
	copy copyMsg  // what it created, if anything
	code string   // the same for a QR code
	undo *allowed // what :undo reverts
}

// allowed is what a peer may reach since a change, and before it, for :undo.
type allowed struct {
	peer, key     string
	before, after []string
}

// stands reports whether the peer may still reach what the change permitted.
func (a *allowed) stands(p *api.PeerStatus) bool {
	return len(without(p.Allow, a.after)) == 0 && len(without(a.after, p.Allow)) == 0
}

// approve approves a waiting peer. The gateway refuses if the key has changed since.
func approve(p *api.PeerStatus) change {
	name, fingerprint := p.Name, p.ApprovalFingerprint
	return change{
		peer: name, key: p.PublicKey,
		title:   "approve " + name,
		command: "postern peer approve " + name + " --fingerprint " + fingerprint,
		effect: fmt.Sprintf("Let it in; it may reach here: %s. Anyone with the ticket could take this name: "+
			"postern join there must have printed %s.", orNothing(p.Allow), fingerprint),
		do: func(ctx context.Context, o Operator) (outcome, error) {
			return outcome{said: "approved " + name}, o.PeerApprove(ctx, name, api.PeerApproveRequest{Fingerprint: fingerprint})
		},
	}
}

// allow replaces what a peer may reach here.
func allow(p *api.PeerStatus, services []string) change {
	name, undo := p.Name, &allowed{p.Name, p.PublicKey, append([]string{}, p.Allow...), services}
	effect := "It may reach here: " + orNothing(services) + "."
	if added := without(services, p.Allow); len(added) > 0 {
		effect += " New: " + strings.Join(added, ", ") + "."
	}
	if taken := without(p.Allow, services); len(taken) > 0 {
		effect += " No longer: " + strings.Join(taken, ", ") + "; connections to it end."
	}
	return change{
		peer: name, key: p.PublicKey,
		title:   "allow " + name,
		command: "postern peer allow " + name + " " + argumentOf(services),
		effect:  effect,
		do: func(ctx context.Context, o Operator) (outcome, error) {
			return outcome{said: name + " may reach here: " + orNothing(services), undo: undo},
				o.PeerAllow(ctx, name, api.PeerAllowRequest{Allow: services})
		},
	}
}

// remove removes a peer. Without open connections it is not forced: if some are opened in the
// meantime the gateway refuses.
func remove(p *api.PeerStatus) change {
	name, open := p.Name, len(p.Flows)+p.UDPFlows
	c := change{
		peer: name, key: p.PublicKey,
		title:   "remove " + name,
		command: "postern peer remove " + name,
		effect:  "Forget it: its tunnel ends, it gets no further identity, and it takes another ticket to come back.",
		do: func(ctx context.Context, o Operator) (outcome, error) {
			return outcome{said: "removed " + name}, o.PeerRemove(ctx, name, open > 0)
		},
	}
	if open > 0 {
		c.command += " --force"
		c.effect += fmt.Sprintf(" Its open connections (%d) are reset.", open)
	}
	return c
}

func orNothing(services []string) string {
	if len(services) == 0 {
		return "nothing"
	}
	return strings.Join(services, ", ")
}

// argumentOf formats a list of services as a shell argument.
func argumentOf(services []string) string {
	if len(services) == 0 {
		return `""`
	}
	return strings.Join(services, ",")
}

// without returns the elements of list that are not in other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// standsStill is the message if a change would be based on a frozen screen.
const standsStill = "the picture stands still; press p first"

// strangeName is the message for a peer whose name could mean something else in a shell.
const strangeName = "no command takes a peer of such a name"

// actsOn offers the changes that are possible for a peer now.
func actsOn(d *data, p *api.PeerStatus) tea.Msg {
	if d.frozen {
		return actedMsg(standsStill)
	}
	if api.CheckName(p.Name) != nil {
		return actedMsg(strangeName)
	}
	offer := chooseMsg{from: d, title: "do what with " + p.Name + "?", does: "show what it does"}
	add := func(text string, msg tea.Msg) { offer.choices = append(offer.choices, choice{text, msg}) }
	if p.ApprovalFingerprint != "" {
		add("let it in, once its fingerprint was compared", approve(p))
	}
	add("check it now", probeMsg{p.Name})
	add("change what it may reach here, now "+orNothing(p.Allow), typeMsg("allow "+p.Name+" "+strings.Join(p.Allow, ",")))
	if len(p.Allow) > 0 {
		add("let it reach nothing here any more", allow(p, []string{}))
	}
	add("remove it", remove(p))
	add("ping it", pingMsg{p.Name})
	add("measure what the path to it carries", measureMsg{p.Name})
	add("copy its fix, addresses, key or JSON", offerCopies(d, p))
	return offer
}

// typeMsg puts a command on the command line, for the operator to complete.
type typeMsg string

// commandChange returns a command that changes the peer named first in its argument.
func commandChange(of func(p *api.PeerStatus, rest string) (change, error)) func(*model, string) tea.Cmd {
	return func(m *model, argument string) tea.Cmd {
		name, rest, _ := strings.Cut(argument, " ")
		i := slices.IndexFunc(m.data.status.Peers, func(p api.PeerStatus) bool { return p.Name == name })
		if i < 0 || api.CheckName(name) != nil {
			return m.sayNoPeer(name)
		}
		c, err := of(&m.data.status.Peers[i], strings.TrimSpace(rest))
		if err != nil {
			return m.say(err.Error())
		}
		return m.propose(c)
	}
}

func approveByCommand(p *api.PeerStatus, _ string) (change, error) {
	if p.ApprovalFingerprint == "" {
		return change{}, fmt.Errorf("%s does not wait for approval", p.Name)
	}
	return approve(p), nil
}

func allowByCommand(p *api.PeerStatus, list string) (change, error) {
	services, err := servicesIn(list)
	return allow(p, services), err
}

// servicesIn parses a list of services as typed.
func servicesIn(list string) ([]string, error) {
	services := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	for _, s := range services {
		if s != api.ServiceAuth && s != api.ServiceAPIServer && api.CheckName(s) != nil {
			return nil, fmt.Errorf("no service is called %q", s)
		}
	}
	return services, nil
}

func removeByCommand(p *api.PeerStatus, _ string) (change, error) { return remove(p), nil }

// commandUndo reverts the last :allow by another one, which is confirmed as well. It is based on
// what the last one permitted, because the screen may be older.
func (m *model) commandUndo(string) tea.Cmd {
	undo := m.data.undo
	if undo == nil {
		return m.say("nothing to undo: it takes back an :allow that was done on this screen")
	}
	i := indexOf(m.data.status.Peers, undo.peer, undo.key)
	if i < 0 {
		return m.say("not undone: " + goneOrOther(undo.peer))
	}
	now := m.data.status.Peers[i]
	now.Allow = undo.after
	c := allow(&now, undo.before)
	c.undoes = undo
	return m.propose(c)
}

// indexOf returns the index of the peer with a name and key, or -1.
func indexOf(peers []api.PeerStatus, name, key string) int {
	return slices.IndexFunc(peers, func(p api.PeerStatus) bool { return p.Name == name && p.PublicKey == key })
}

// goneOrOther is the message for a peer that is gone or has another key.
func goneOrOther(name string) string { return "peer " + name + " is gone, or has another key by now" }

// progress is the stage of a change.
type progress int

const (
	stageAsked progress = iota
	stageRunning
	stageDone
	stageFailed
)

// proposal is a change that the operator is asked to confirm, and then its result.
type proposal struct {
	change
	gateway NamedSource // the gateway with the peer, where the change is made
	of      *data       // what is known of that gateway
	asked   time.Time
	stage   progress
	outcome outcome
	err     error // why it failed
}

// carryOut makes the change, unless the name belongs to another peer by now or what it reverts is
// gone.
func (p *proposal) carryOut(ctx context.Context) (outcome, error) {
	s, err := p.gateway.Source.Status(ctx)
	if err != nil {
		return outcome{}, err
	}
	if p.peer != "" {
		i := indexOf(s.Peers, p.peer, p.key)
		switch {
		case i < 0:
			return outcome{}, errors.New(goneOrOther(p.peer))
		case p.undoes != nil && !p.undoes.stands(&s.Peers[i]):
			return outcome{}, fmt.Errorf("what %s may reach here was changed since, and is now: %s", p.peer, orNothing(s.Peers[i].Allow))
		}
	}
	return p.do(ctx, p.gateway.Operator)
}

// readTime is how long a question cannot be answered. What is typed sooner was typed before it was
// visible.
const readTime = 300 * time.Millisecond

// readMsg redraws a question when it can be answered.
type readMsg struct{}

// changedMsg is the end of a change.
type changedMsg struct {
	of      *proposal
	outcome outcome
	err     error
}

// ended describes how the change ended.
func (p *proposal) ended() (text string, st cell.Style) {
	if p.stage == stageFailed {
		return "✗ not done: " + p.err.Error(), cell.Bad
	}
	text = "✓ " + p.outcome.said
	if p.outcome.undo != nil {
		text += "; :undo takes it back"
	}
	return text, cell.Good
}

// propose shows a change based on the current state. Nothing is done before it is confirmed.
func (m *model) propose(c change) tea.Cmd {
	if m.data.frozen {
		return m.say(standsStill)
	}
	gateway := m.sources[m.source]
	if len(m.sources) > 1 {
		c.title += " at " + gateway.Name
	}
	m.mode, m.proposal = modeConfirm, &proposal{change: c, gateway: gateway, of: m.data, asked: m.now()}
	return m.tasks.after(readTime, readMsg{})
}

// pressedInProposal confirms the change, copies its command, or leaves.
func (m *model) pressedInProposal(msg tea.KeyMsg) tea.Cmd {
	p, k := m.proposal, keys()
	switch {
	case msg.Paste: // A paste is no answer.
	case key.Matches(msg, k.confirm) && !m.readable():
	case key.Matches(msg, k.confirm):
		return m.confirmed(p)
	case key.Matches(msg, k.copy):
		return m.copy(p.copies())
	case key.Matches(msg, k.decline):
		m.mode = modeKeys
	}
	return nil
}

// copies returns what can be copied: what was created, or else the command.
func (p *proposal) copies() copyMsg {
	if p.outcome.copy.text != "" {
		return p.outcome.copy
	}
	return copyMsg{p.command, "the command"}
}

// readable reports whether the question was visible long enough to be answered.
func (m *model) readable() bool { return m.now().Sub(m.proposal.asked) >= readTime }

// confirmed makes a change. One that was not fully visible cannot be confirmed.
func (m *model) confirmed(p *proposal) tea.Cmd {
	switch {
	case p.stage != stageAsked || p.gateway.Operator == nil:
		return nil
	case m.proposalCut:
		return m.say("not done: enlarge the terminal to see what it does")
	}
	p.stage = stageRunning
	return m.tasks.run(changeLimit, func(ctx context.Context) tea.Msg {
		outcome, err := p.carryOut(ctx)
		return changedMsg{p, outcome, err}
	})
}

// changed handles the result of a change, and updates the screen at once.
func (m *model) changed(msg changedMsg) tea.Cmd {
	p := msg.of
	p.stage, p.outcome = stageDone, msg.outcome
	if msg.err != nil {
		p.stage, p.outcome, p.err = stageFailed, outcome{}, msg.err
	}
	switch {
	case p.stage == stageDone && p.undoes != nil:
		p.outcome.undo, p.of.undo = nil, nil
	case p.outcome.undo != nil:
		p.of.undo = p.outcome.undo
	}
	if m.mode != modeConfirm || m.proposal != p {
		text, _ := p.ended()
		m.say(p.title + ": " + text)
		if p.outcome.copy.text != "" { // it is shown nowhere else
			m.mode, m.proposal = modeConfirm, p
		}
	}
	p.of.polledAt, p.of.checksAt = time.Time{}, time.Time{}
	return m.poll()
}

// proposalLines describes a change, with a QR code of what was created, if there is room for it
// beside or below.
func (m *model) proposalLines(width, height int) []string {
	p, d := m.proposal, m.data
	title := d.rule(d.paint.Text(cell.Strong, cell.Printable(p.title)), width)
	text := m.proposalText(width)
	if p.outcome.code == "" {
		return append([]string{title}, text...)
	}
	why := "no QR code without Unicode: type :graph block, or copy the ticket"
	if d.graph != graphASCII {
		code, err := cell.Code(p.outcome.code)
		if err == nil {
			high, wide := len(code), ansi.StringWidth(code[0])
			for i := range code {
				code[i] = d.paint.Text(cell.Inked, code[i])
			}
			if 1+len(text)+high <= height && wide <= width {
				return append(append([]string{title}, text...), code...)
			}
			left := width - wide - besideGap
			if text := m.proposalText(left); left >= leastBeside && 1+max(len(text), high) <= height {
				high = max(len(text), high)
				return append([]string{title}, beside(d, [][]string{exactly(text, left, high), exactly(code, wide, high)}, []int{left, wide})...)
			}
			why = fmt.Sprintf("no room for its QR code, which takes %d × %d characters: enlarge the terminal, or copy the ticket", wide, high)
		} else {
			why = err.Error()
		}
	}
	return append(append([]string{title}, text...), cell.Wrap("", why, width, "")...)
}

// leastBeside is the minimum width of a text with something beside it.
const leastBeside = 30

// proposalText returns the command, its effect, and how it ended.
func (m *model) proposalText(width int) []string {
	p, paint := m.proposal, m.data.paint
	var lines []string
	for _, l := range cell.Wrap("$ ", cell.Printable(p.command), width, "  ") {
		lines = append(lines, paint.Text(cell.Second, l))
	}
	lines = append(lines, cell.Wrap("", cell.Printable(p.effect), width, "")...)
	if p.stage == stageDone || p.stage == stageFailed {
		text, style := p.ended()
		for _, l := range cell.Wrap("", cell.Printable(text), width, "  ") {
			lines = append(lines, paint.Text(style, l))
		}
		lines = append(lines, cell.Wrap("", cell.Printable(p.outcome.copy.text), width, "")...)
	}
	return lines
}

// proposalFoot names the keys that are available now.
func (m *model) proposalFoot() string {
	p, k := m.data.paint, keys()
	var items []string
	switch {
	case m.proposal.gateway.Operator == nil:
		items = append(items, p.Text(cell.Wary, "read-only"))
	case m.proposal.stage == stageRunning:
		items = append(items, "being done …")
	case m.proposal.stage == stageAsked && m.readable():
		items = append(items, hint(p, k.confirm))
	}
	if m.notice != "" {
		return strings.Join(append(items, cell.Printable(m.notice)), "  ")
	}
	return strings.Join(append(items, hint(p, describe(k.copy, "copy "+m.proposal.copies().what)), hint(p, k.decline)), "  ")
}

// hint formats a key and what it does.
func hint(p cell.Paint, b key.Binding) string {
	return p.Text(cell.Second, b.Help().Key) + " " + p.Text(cell.Quiet, b.Help().Desc)
}
