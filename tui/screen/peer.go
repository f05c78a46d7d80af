package screen

import (
	"slices"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

const titlePeer = "Peer"

// peerView shows everything that is known about the selected peer.
type peerView struct {
	scroller
	shown string // the peer that top belongs to
}

func newPeerView() *peerView { return &peerView{} }

func (*peerView) title() string { return titlePeer }

func (*peerView) bindings() []key.Binding {
	k := keys()
	return []key.Binding{k.left, k.right, describe(k.probe, "check peer now"), k.act, describe(k.copy, "copy its fix")}
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
	case key.Matches(m, k.enter): // It opens this view.
	default:
		return peerKey(m, d)
	}
	return nil
}

// neighbour selects the previous or next peer by name.
func (v *peerView) neighbour(d *data, step int) {
	peers := d.status.Peers
	at := d.peerIndex()
	if to := at + step; to >= 0 && to < len(peers) {
		d.peers.choose(peerID(&peers[to]))
	}
}

func (v *peerView) draw(d *data, width, height int) string {
	p := d.selected()
	if p == nil {
		return sentence(d.nobody(), width, height)
	}
	if v.shown != d.peers.id {
		v.shown, v.top = d.peers.id, 0
	}
	return v.scroller.draw(peerLines(d, p, width), width, height)
}

// peerLines puts the most urgent first: the break of the path, the verdicts, the paths, then the
// rest, which is beside them if there is room.
func peerLines(d *data, s *api.PeerStatus, width int) []string {
	p := d.paint
	head := p.Text(cell.Strong, cell.Printable(s.Name)) + "  " + p.Cell(cell.PeerState(s))
	first := func(width int) []string {
		lines := append([]string{head}, paneWay.draw(d, s, width, far)...)
		wrong := slices.DeleteFunc(d.wrong(s), cell.Finding.OfPeersCheck) // paneChecks has those
		if trouble := drawn(d, wrong, width); len(trouble) > 0 {
			lines = append(append(lines, ""), trouble...)
		}
		return append(lines, sections(d, s, []pane{paneHour, paneChecks}, width)...)
	}
	rest := []pane{paneFaring, paneEvents, paneCandidates, paneHistory, paneConnections, paneListeners, paneAbout}
	if width < twoColumns {
		return append(first(width), sections(d, s, rest, width)...)
	}
	half := (width - besideGap) / 2
	left, right := first(half), append([]string{p.Text(cell.Strong, "throughput")}, paneThroughput.draw(d, s, half, peerChart)...)
	right = append(right, sections(d, s, rest, half)...)
	height := max(len(left), len(right))
	return beside(d, [][]string{exactly(left, half, height), exactly(right, half, height)}, []int{half, half})
}

// peerChart is the height of a peer's throughput among other panes.
const peerChart = 12

// sections draws panes below each other, with an empty line and a title before each.
func sections(d *data, s *api.PeerStatus, panes []pane, width int) []string {
	var lines []string
	for _, part := range panes {
		if body := part.draw(d, s, width, far); len(body) > 0 {
			lines = append(append(lines, "", part.title(d, s)), body...)
		}
	}
	return lines
}

// checksOf returns the checks of one peer, the worst first.
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
