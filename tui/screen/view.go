package screen

import (
	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"
)

// view is one of the screen's. Its methods are called by the program's goroutine
// only.
type view interface {
	// title is its name in the tab bar and on the command line.
	title() string
	// bindings are the keys that mean something here, for the help sheet and the footer.
	bindings() []key.Binding
	// update takes keys and mouse events (with rows counted from the view's first line)
	// that the frame does not take itself.
	update(msg tea.Msg, d *data) tea.Cmd
	// draw gives exactly height lines without a final line end, none wider than width.
	// Both are at least 1.
	draw(d *data, width, height int) string
}

// sortable is a view with columns to sort by: `s` takes the next, `:sort COLUMN` one by
// its name, and the same again turns the order round.
type sortable interface {
	sortColumns() []string // lower case, as typed
	sortedBy() (column string, descending bool)
	sortBy(column string)
}

// groupable is a view whose rows can be gathered in groups: `b` asks by what, `:group` says it.
type groupable interface {
	groupings(d *data) []string
	groupBy(grouping string)
}

// What a view's update may ask of the frame, as the message of its command.
type (
	// openMsg shows another view; esc leads back.
	openMsg struct{ title string }
	// probeMsg runs the checks of one peer by its name, or all.
	probeMsg struct{ peer string }
	// pingMsg measures the round trip to a peer, and measureMsg what the path to it carries.
	pingMsg    struct{ peer string }
	measureMsg struct{ peer string }
	// copyMsg puts text on the clipboard (OSC 52). It must be rendered here, never be a
	// peer's own words, unless these were asked for.
	copyMsg struct{ text, what string }
)

// ask is a command that gives a message at once.
func ask(msg tea.Msg) tea.Cmd { return func() tea.Msg { return msg } }
