package screen

import (
	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"
)

// view is a view of the screen. Only the program's goroutine calls its methods.
type view interface {
	// title is its name in the tab bar and on the command line.
	title() string
	// bindings returns its keys, for the help sheet and the footer.
	bindings() []key.Binding
	// update handles keys and mouse events (with rows counted from the view's first line) that the
	// frame does not handle itself.
	update(msg tea.Msg, d *data) tea.Cmd
	// draw returns exactly height lines without a final newline, none wider than width. Both are at
	// least 1.
	draw(d *data, width, height int) string
}

// sortable is a view with sort columns: `s` selects the next, `:sort COLUMN` one by its name, and
// the same again reverses the order.
type sortable interface {
	sortColumns() []string // lower case, as typed
	sortedBy() (column string, descending bool)
	sortBy(column string)
}

// groupable is a view whose rows can be grouped: `b` asks how, `:group` sets it.
type groupable interface {
	groupings(d *data) []string
	groupBy(grouping string)
}

// What a view's update may ask of the frame, as the message of its command.
type (
	// openMsg shows another view; esc returns.
	openMsg struct{ title string }
	// probeMsg runs the checks of one peer by its name, or all.
	probeMsg struct{ peer string }
	// pingMsg measures the round trip to a peer, and measureMsg the throughput of the path to it.
	pingMsg    struct{ peer string }
	measureMsg struct{ peer string }
	// copyMsg puts text on the clipboard (OSC 52). It must be rendered here, and never be a peer's
	// own words, unless the user asked for those.
	copyMsg struct{ text, what string }
)

// ask returns a command that delivers a message at once.
func ask(msg tea.Msg) tea.Cmd { return func() tea.Msg { return msg } }

// views returns all views, in the order of their numbers.
func views() []view {
	return []view{newOverview(), newPeerView(), newThroughput(), newChecks(), newFlows(), newLog(), newTimeline(), newServices()}
}
