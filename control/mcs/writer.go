package mcs

import (
	"maps"
	"slices"
)

// knowledge is how much a writer knows of what its reader has.
type knowledge uint8

const (
	unknown knowledge = iota // it is asked whether it has all
	partial                  // it has a part of a catalogue that started over
	known
)

// Writer tells one peer a catalogue: what differs from what it has. It is not safe for concurrent
// use.
type Writer struct {
	want  map[string]*Entry
	size  int             // of want, in bytes of JSON
	dirty map[string]bool // where want and has may differ
	has   map[string]*Entry
	told  int    // the size of has
	of    digest // of has
	knows knowledge
	last  *Message // that was not answered
}

// NewWriter makes a writer of an empty catalogue.
func NewWriter() *Writer { return &Writer{want: map[string]*Entry{}, dirty: map[string]bool{}} }

// Set has an entry of that name told; nil takes it away. It reports false when there are too many, and
// takes away what was told of that name.
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

// Fill has these entries told, and no others, or as many of them as there is room for, and gives the
// names of the rest. Namespaces take turns: the services of one leave room for those of others. Of one
// namespace, those that are told already come first.
func (w *Writer) Fill(entries map[string]*Entry) (rest []string) {
	names := slices.Sorted(maps.Keys(entries))
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case w.Tells(a) == w.Tells(b):
			return 0
		case w.Tells(a):
			return -1
		}
		return 1
	})
	names = Turns(names, func(name string) (string, int) {
		return NameOfPort(name).Namespace, max(len(entries[name].Text), MaxCatalogue/MaxServices)
	})
	told, size := map[string]*Entry{}, 0
	for _, name := range names {
		e := entries[name]
		if len(told) >= MaxServices || size+len(e.Text) > MaxCatalogue {
			rest = append(rest, name)
			continue
		}
		told[name], size = e, size+len(e.Text)
	}
	for name, was := range w.want { // what goes or changes makes room first
		if e := told[name]; e == nil || e.sum != was.sum {
			w.Set(name, nil)
		}
	}
	for name, e := range told {
		w.Set(name, e)
	}
	return rest
}

// Doubt has the reader asked what it has. The answer to a message that is on its way does not count:
// it is from before.
func (w *Writer) Doubt() { w.knows, w.last = unknown, nil }

// Due reports whether there is something to be told.
func (w *Writer) Due() bool { return w.knows != known || len(w.dirty) > 0 || w.last != nil }

// Told reports whether the reader is known to have a version.
func (w *Writer) Told(version string) bool { return w.knows == known && w.Expects(version) }

// Expects reports whether a version is the one that the reader has once it took what it was told.
func (w *Writer) Expects(version string) bool { return w.of.String() == version }

// Tells reports whether a service is in the catalogue.
func (w *Writer) Tells(name string) bool { return w.want[name] != nil }

// Knows reports whether the reader has a service as it is.
func (w *Writer) Knows(name string) bool {
	return w.knows == known && w.want[name] != nil && !w.dirty[name] && w.last == nil
}

// Names are those of the catalogue.
func (w *Writer) Names() []string { return slices.Sorted(maps.Keys(w.want)) }

// Next is what is to be told next. What the reader then has is to be given to [Writer.Answered];
// until then it is the same again.
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
	// What is gone goes first, and what grows when there is room for it: the reader never has more
	// than may be.
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
		if w.told-w.has[name].len()+e.len() > MaxCatalogue {
			continue // something shrinks
		}
		if full = !fits(e.weight(), e.len()+1); !full {
			w.note(name, e)
			m.Set = append(m.Set, e.Text)
		}
	}
	m.More = w.knows == partial && len(w.dirty) > 0
	return m
}

// note counts an entry as told.
func (w *Writer) note(name string, e *Entry) {
	if was := w.has[name]; was != nil {
		w.of.flip(was.sum)
		w.told -= was.len()
		delete(w.has, name)
	}
	if e != nil {
		w.has[name] = e
		w.of.flip(e.sum)
		w.told += e.len()
	}
	delete(w.dirty, name)
}

// forget has the reader have nothing.
func (w *Writer) forget() { w.has, w.told, w.of = map[string]*Entry{}, 0, digest{} }

// Answered takes the version that the reader has by now. It reports whether that is what it was
// told; if not, it is told everything again.
func (w *Writer) Answered(has string) bool {
	if w.last == nil { // it is doubted since it was told
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
