package screen

import (
	"slices"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"
)

// cursor is a selection in a list of rows, by identity: rows may appear, disappear and move without
// changing it. Rows are identified by strings that are unique in their list.
type cursor struct {
	id string
	// at is the last index of id, top the first row shown, and page the number of rows shown.
	at, top, page int
	// standIn is the row selected instead of hidden, which was filtered out or removed. When hidden
	// is back and the selection has not been moved, it is selected again.
	standIn, hidden string
	// leading: the list begins with the most urgent. Until a row is chosen, and after a key for the
	// first one, the first is selected, whichever it is.
	leading, chosen bool
}

// choose selects a row, whether it is shown or not.
func (c *cursor) choose(id string) { c.id, c.chosen = id, true }

// settle finds the selection among the rows. If it is gone, the row in its place is selected.
func (c *cursor) settle(ids []string) {
	if c.leading && !c.chosen && len(ids) > 0 {
		c.id, c.standIn, c.hidden = ids[0], "", ""
	}
	if c.id != c.standIn {
		c.standIn, c.hidden = "", ""
	}
	if i := slices.Index(ids, c.hidden); c.hidden != "" && i >= 0 {
		c.id, c.standIn, c.hidden = c.hidden, "", ""
	}
	if i := slices.Index(ids, c.id); i >= 0 {
		c.at = i
		return
	}
	c.at = max(0, min(c.at, len(ids)-1))
	if len(ids) == 0 {
		return
	}
	if c.hidden == "" {
		c.hidden = c.id
	}
	c.id = ids[c.at]
	c.standIn = c.id
}

// window settles the selection and returns the rows that fit into a height: ids[first:last],
// including the selected one.
func (c *cursor) window(ids []string, height int) (first, last int) {
	c.settle(ids)
	c.page = max(1, height)
	c.top = min(c.top, c.at, max(0, len(ids)-c.page))
	c.top = max(c.top, c.at-c.page+1, 0)
	return c.top, min(len(ids), c.top+c.page)
}

// key moves the selection among the rows and reports whether the key was for it.
func (c *cursor) key(msg tea.KeyMsg, ids []string) bool {
	if i := slices.Index(ids, c.id); i >= 0 {
		c.at = i
	}
	step, ok := stepOf(msg, c.page)
	if !ok {
		return false
	}
	c.to(c.at+step, ids)
	c.chosen = len(ids) > 0 && !key.Matches(msg, keys().first)
	return true
}

// to selects the row at an index, or the nearest that there is.
func (c *cursor) to(at int, ids []string) {
	if len(ids) == 0 {
		return
	}
	c.at = min(max(0, at), len(ids)-1)
	if id := ids[c.at]; id != c.id { // Otherwise it did not move.
		c.id, c.standIn, c.hidden = id, "", ""
	}
}

// far is more rows than any list has.
const far = 1 << 30

// stepOf returns how many rows a key moves by.
func stepOf(msg tea.KeyMsg, page int) (int, bool) {
	k := keys()
	switch {
	case key.Matches(msg, k.up):
		return -1, true
	case key.Matches(msg, k.down):
		return 1, true
	case key.Matches(msg, k.pageUp):
		return -max(1, page), true
	case key.Matches(msg, k.pageDown):
		return max(1, page), true
	case key.Matches(msg, k.first):
		return -far, true
	case key.Matches(msg, k.last):
		return far, true
	}
	return 0, false
}
