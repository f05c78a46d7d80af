package screen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/tui/cell"
)

const titlePeer = "Peer"

// peerView shows everything that is known of the selected peer.
type peerView struct {
	scroller
	shown string // the peer that top belongs to
}

func newPeerView() *peerView { return &peerView{} }

func (*peerView) title() string { return titlePeer }

func (*peerView) bindings() []key.Binding {
	k := keys()
	return []key.Binding{k.left, k.right, describe(k.probe, "check peer now"), describe(k.copy, "copy its fix")}
}

func (v *peerView) update(msg tea.Msg, d *data) tea.Cmd {
	if v.scroller.update(msg) {
		return nil
	}
	m, ok := msg.(tea.KeyMsg)
	if !ok {
		return nil
	}
	k := keys()
	switch {
	case key.Matches(m, k.left):
		v.neighbour(d, -1)
	case key.Matches(m, k.right):
		v.neighbour(d, 1)
	case key.Matches(m, k.enter): // It leads here.
	default:
		return peerKey(m, d)
	}
	return nil
}

// neighbour selects the peer before or after by name.
func (v *peerView) neighbour(d *data, step int) {
	peers := d.status.Peers
	at := slices.IndexFunc(peers, func(p api.PeerStatus) bool { return peerID(&p) == d.peers.id })
	if to := at + step; to >= 0 && to < len(peers) {
		d.peers.id = peerID(&peers[to])
	}
}

func (v *peerView) draw(d *data, width, height int) string {
	p := d.peer()
	if p == nil && len(d.status.Peers) > 0 { // Nobody has chosen yet, or it is gone.
		p = &d.status.Peers[0]
		d.peers.id = peerID(p)
	}
	if p == nil {
		return strings.Join(exactly(cell.Wrap("", d.nobody(), width, ""), width, height), "\n")
	}
	if v.shown != d.peers.id {
		v.shown, v.top = d.peers.id, 0
	}
	return v.scroller.draw(peerLines(d, p, width), width, height)
}

// peerLines has what asks for attention first: the verdicts, then the paths, then the
// rest.
func peerLines(d *data, s *api.PeerStatus, width int) []string {
	p := d.paint
	lines := []string{p.Text(cell.Strong, cell.Printable(s.Name)) + "  " + p.Cell(cell.State(s.Shown()))}
	for _, f := range cell.StateFindings(s) {
		lines = append(lines, f.Lines(width, p)...)
	}
	lines = append(lines, factLines(d, faring(d, s), width)...)
	section := func(title string, body []string) {
		if len(body) > 0 {
			lines = append(lines, "", p.Text(cell.Strong, title))
			lines = append(lines, body...)
		}
	}
	var checks []string
	for _, c := range d.checksOf(s.Name) {
		checks = append(checks, cell.CheckLines(c, cell.Subject(c, false), width, p, d.now, true)...)
	}
	if len(checks) > 0 {
		section("checks  → from here  ← as the peer reports", checks)
	} else {
		section("endpoints", cell.Reachability(s, p))
		for _, f := range cell.VerdictFindings(s) {
			lines = append(append(lines, ""), f.Lines(width, p)...)
		}
	}
	section("candidates", cell.CandidateTable(s.Candidates, width, p))
	section("path history", wrapped(cell.History(s, d.now), width))
	section("open connections", wrapped(cell.Flows(s, d.now), width))
	section("listeners here", wrapped(cell.Listeners(s), width))
	section("about", factLines(d, about(s), width))
	return lines
}

func wrapped(rows []string, width int) []string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, cell.Wrap("  ", r, width, "    ")...)
	}
	return lines
}

// checksOf are the checks of one peer, the worst first.
func (d *data) checksOf(peer string) []*api.Check {
	var out []*api.Check
	for i := range d.report.Checks {
		if d.report.Checks[i].Peer == peer {
			out = append(out, &d.report.Checks[i])
		}
	}
	slices.SortStableFunc(out, cell.CompareChecks)
	return out
}

// faring is how a peering fares.
func faring(d *data, s *api.PeerStatus) [][2]string {
	why := ""
	if s.Path.Kind != api.PathNone {
		why = cell.Printable(s.Path.Reason)
	}
	return [][2]string{
		{"path", cell.PathLine(&s.Path, d.now)},
		{"why", why},
		{"carries", cell.Printable(catalogue.Seen(s.Path.Traffic))},
		{"handshake", cell.HandshakeLine(s, d.now)},
		{"traffic", fmt.Sprintf("rx %s (%s/s), tx %s (%s/s)", cell.Size(float64(s.RxBytes)), cell.Size(s.RxBytesPerSecond), cell.Size(float64(s.TxBytes)), cell.Size(s.TxBytesPerSecond))},
		{"identity", cell.IdentityLine(s, d.now)},
	}
}

// about is what a peer is.
func about(s *api.PeerStatus) [][2]string {
	kind, mtu := "", ""
	if s.Stock {
		kind = "plain WireGuard peer"
	}
	if s.Path.MTU != 0 {
		mtu = fmt.Sprintf("%d bytes", s.Path.MTU)
	}
	return [][2]string{
		{"may reach", cell.OrNothing(s.Allow)},
		{"offers us", cell.OrNothing(s.Offers)},
		{"kind", kind},
		{"mode", cell.Printable(s.Mode)},
		{"version", cell.Printable(s.Version)},
		{"path MTU", mtu},
		{"address", cell.Printable(s.Address)},
		{"public key", cell.Printable(s.PublicKey)},
	}
}

// factLines has a line for each fact, without those that there are none of.
func factLines(d *data, facts [][2]string, width int) []string {
	const indent = 12
	var lines []string
	for _, f := range facts {
		name, value := f[0], f[1]
		if value == "" {
			continue
		}
		label := name + strings.Repeat(" ", max(1, indent-ansi.StringWidth(name)))
		for i, l := range cell.Wrap(label, value, width, strings.Repeat(" ", indent)) {
			if rest, ok := strings.CutPrefix(l, name); ok && i == 0 {
				l = d.paint.Text(cell.Quiet, name) + rest
			}
			lines = append(lines, l)
		}
	}
	return lines
}
