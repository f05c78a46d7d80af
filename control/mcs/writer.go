package mcs

import (
	"maps"
	"slices"
)

// knowledge is how much a writer knows about its reader's catalogue.
type knowledge uint8

const (
	unknown knowledge = iota // the reader is asked for its version
	partial                  // it has a part of a new catalogue
	known
)

// Writer sends one peer a catalogue: the differences from what the peer has. It is not safe for
// concurrent use.
type Writer struct {
	want    map[string]*Entry
	size    int             // of want, in bytes of JSON
	dirty   map[string]bool // names for which want and has may differ
	has     map[string]*Entry
	hasSize int    // the size of has
	of      digest // of has
	knows   knowledge
	last    *Message // not yet answered
}

// NewWriter returns a writer of an empty catalogue.
func NewWriter() *Writer { return &Writer{want: map[string]*Entry{}, dirty: map[string]bool{}} }

// Set sets the entry of a name; nil removes it. It returns false if there are too many, and then
// removes the name's entry.
func (w *Writer) Set(name string, e *Entry) bool {
	was := w.want[name]
	if e == nil && was == nil || e != nil && was != nil && e.sum == was.sum {
		return true
	}
	if was != nil {
		w.size -= len(was.Text)
		delete(w.want, name)
		w.dirty[name] = true
	}
	if e == nil {
		return true
	}
	if len(w.want) >= MaxServices || w.size+len(e.Text) > MaxCatalogue {
		return false
	}
	w.size += len(e.Text)
	w.want[name] = e
	w.dirty[name] = true
	return true
}

// Fill makes the catalogue these entries, or as many of them as there is room for, and returns the
// names of the rest. Namespaces take turns, so that the services of one leave room for those of
// others. Within a namespace, those in the catalogue come first, as do those that [Writer.Set] has
// just removed from it because they have grown.
func (w *Writer) Fill(entries map[string]*Entry) (rest []string) {
	names := Turns(slices.Sorted(maps.Keys(entries)), func(name string) (string, int, bool) {
		return NameOfPort(name).Namespace, max(len(entries[name].Text), MaxCatalogue/MaxServices), w.Contains(name) || w.dirty[name]
	})
	fits, size := map[string]*Entry{}, 0
	for _, name := range names {
		e := entries[name]
		if len(fits) >= MaxServices || size+len(e.Text) > MaxCatalogue {
			rest = append(rest, name)
			continue
		}
		fits[name], size = e, size+len(e.Text)
	}
	for name, was := range w.want { // make room first
		if e := fits[name]; e == nil || e.sum != was.sum {
			w.Set(name, nil)
		}
	}
	for name, e := range fits {
		w.Set(name, e)
	}
	return rest
}

// Recheck makes the writer ask the reader for its version. The answer to a message on its way is
// ignored, because it is older.
func (w *Writer) Recheck() { w.knows, w.last = unknown, nil }

// Due reports whether there is something to send.
func (w *Writer) Due() bool { return w.knows != known || len(w.dirty) > 0 || w.last != nil }

// Synced reports whether the reader is known to have a version.
func (w *Writer) Synced(version string) bool { return w.knows == known && w.Expects(version) }

// Expects reports whether a version is the one that the reader has after all that was sent.
func (w *Writer) Expects(version string) bool { return w.of.String() == version }

// Contains reports whether a service is in the catalogue.
func (w *Writer) Contains(name string) bool { return w.want[name] != nil }

// Delivered reports whether the reader has the current entry of a service.
func (w *Writer) Delivered(name string) bool {
	return w.knows == known && w.want[name] != nil && !w.dirty[name] && w.last == nil
}

// Names returns the names in the catalogue.
func (w *Writer) Names() []string { return slices.Sorted(maps.Keys(w.want)) }

// Next returns the next message. The version that the reader then has must be passed to
// [Writer.Answered]; until then Next returns the same message.
func (w *Writer) Next() Message {
	if w.last == nil {
		m := w.compose()
		w.last = &m
	}
	return *w.last
}

func (w *Writer) compose() Message {
	if w.knows == unknown {
		w.forget()
		for name, e := range w.want {
			w.note(name, e)
		}
		clear(w.dirty)
		return Message{Base: w.of.String()}
	}
	m := Message{Base: w.of.String()}
	if w.knows == partial && len(w.has) == 0 {
		m.Base = ""
	}
	// Removals go first, and what grows waits for room, so that the reader never exceeds the
	// bounds.
	values, size := 0, 0
	fits := func(v, n int) bool {
		ok := values+size == 0 || values+v <= messageValues && size+n <= messageBytes
		if ok {
			values, size = values+v, size+n
		}
		return ok
	}
	full := false
	for name := range w.dirty {
		switch {
		case w.want[name] != nil:
		case w.has[name] == nil:
			delete(w.dirty, name)
		case len(m.Gone) < maxGone && fits(1, len(name)+3):
			w.note(name, nil)
			m.Gone = append(m.Gone, name)
		default:
			full = true
		}
	}
	for name := range w.dirty {
		if full {
			break
		}
		e := w.want[name]
		if w.hasSize-w.has[name].len()+e.len() > MaxCatalogue {
			continue // wait for another to shrink
		}
		if full = !fits(e.weight(), e.len()+1); !full {
			w.note(name, e)
			m.Set = append(m.Set, e.Text)
		}
	}
	m.More = w.knows == partial && len(w.dirty) > 0
	return m
}

// note records an entry as sent.
func (w *Writer) note(name string, e *Entry) {
	if was := w.has[name]; was != nil {
		w.of.flip(was.sum)
		w.hasSize -= was.len()
		delete(w.has, name)
	}
	if e != nil {
		w.has[name] = e
		w.of.flip(e.sum)
		w.hasSize += e.len()
	}
	delete(w.dirty, name)
}

// forget assumes that the reader has nothing.
func (w *Writer) forget() { w.has, w.hasSize, w.of = map[string]*Entry{}, 0, digest{} }

// Answered records the version that the reader has now. It reports whether that is what was sent;
// if not, everything is sent again.
func (w *Writer) Answered(has string) bool {
	if w.last == nil { // in doubt since it was sent
		return true
	}
	w.last = nil
	if has == w.of.String() {
		if w.knows == unknown || len(w.dirty) == 0 {
			w.knows = known
		}
		return true
	}
	first := w.knows == unknown
	w.knows = partial
	w.forget()
	for name := range w.want {
		w.dirty[name] = true
	}
	return first
}
