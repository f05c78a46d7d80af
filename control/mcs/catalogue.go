package mcs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/catalogue"
)

// A catalogue is what one gateway tells another that it exports. Its version is a digest of what is
// in it, so that it means the same to both after either has started again, and how much was missed
// does not matter: a message says from which version it leads on. One that leads on from nothing
// starts the catalogue over, which counts when all of it is there.

const (
	// MaxServices is how many services a peer may export to another.
	MaxServices = 2000
	// MaxCatalogue is how large their entries are together, in bytes of JSON.
	MaxCatalogue = 4 << 20
	// MaxMessage bounds a message, in bytes of JSON.
	MaxMessage = 32 << 10
	// A message has less than that many values, and bytes of entries.
	messageValues, messageBytes = 6000, MaxMessage - 4<<10
	maxGone                     = 128
	maxName                     = 2*MaxLabel + 1
)

// ErrTooMany refuses a catalogue of more than [MaxServices] or [MaxCatalogue], or than there is room for.
var ErrTooMany = fmt.Errorf("it has more than %d services or %d bytes, or than there is room for", MaxServices, MaxCatalogue)

// digest is the sum of those of the entries, whatever their order.
type digest [sha256.Size]byte

func (d *digest) flip(sum [sha256.Size]byte) {
	for i := range d {
		d[i] ^= sum[i]
	}
}

func (d digest) String() string { return hex.EncodeToString(d[:16]) }

// Nothing is the version of a catalogue without entries.
var Nothing = digest{}.String()

// Message is a part of a catalogue on its way.
type Message struct {
	Version string `json:"version" max:"64"`
	// Base is the version of the catalogue that it leads on from; empty starts over.
	Base string `json:"base" max:"64"`
	// Set are entries that are new or changed, Gone the names of those that are no more.
	Set  []json.RawMessage `json:"set,omitempty" max:"2000x24576"`
	Gone []string          `json:"gone,omitempty" max:"2000x127"`
	// More follows before the catalogue that started over is to count.
	More bool `json:"more,omitempty"`
	// Has is the version that the sender has of the reader's own catalogue; empty where it has none.
	Has string `json:"has,omitempty" max:"64"`
}

// ParseMessage reads a message of a peer.
func ParseMessage(body []byte) (Message, error) {
	var m Message
	err := bounded.Unmarshal(body, MaxMessage, &m)
	return m, err
}

// held is an entry that was read: an offer, or why it is refused, or nothing where it is not wanted.
type held struct {
	sum   [sha256.Size]byte
	size  int
	offer *Offer
	why   string
}

// book is a catalogue as it was read.
type book struct {
	digest  digest
	size    int // of the entries, in bytes of JSON
	kept    int // of those with an offer
	entries map[string]held
}

func newBook() *book { return &book{entries: map[string]held{}} }

// Reader has what one peer told. It is not safe for concurrent use.
type Reader struct {
	now   *book // nil before all of one was there
	next  *book // while one that started over is not complete
	wants func(namespace string) bool
	// lacks: there are entries that are wanted by now, and were not when they came.
	lacks bool
}

// NewReader makes one that keeps what is in the namespaces that wants means.
func NewReader(wants func(namespace string) bool) *Reader { return &Reader{wants: wants} }

// Want has it keep what is in other namespaces. It reports whether the peer has to tell everything again for
// that: until then nothing of it was heard.
func (r *Reader) Want(wants func(namespace string) bool) (lacks bool) {
	r.wants, r.next = wants, nil
	if r.now == nil {
		return false
	}
	for name, h := range r.now.entries {
		switch {
		case r.keeps(name):
			r.lacks = r.lacks || h.offer == nil && h.why == ""
		case h.offer != nil:
			r.now.kept -= h.size
			fallthrough
		default:
			h.offer, h.why = nil, ""
			r.now.entries[name] = h
		}
	}
	return r.lacks
}

// Kept is the size of the entries that are kept whole, in bytes of JSON.
func (r *Reader) Kept() int {
	kept := 0
	for _, b := range []*book{r.now, r.next} {
		if b != nil {
			kept += b.kept
		}
	}
	return kept
}

// Has is the version of the catalogue as far as it was read; empty before there is one.
func (r *Reader) Has() string {
	switch {
	case r.next != nil:
		return r.next.digest.String()
	case r.Heard():
		return r.now.digest.String()
	}
	return ""
}

// Clear has the peer export nothing, and gives the names whose offers may have changed.
func (r *Reader) Clear() []Name {
	changed := r.all(nil)
	r.now, r.next, r.lacks = newBook(), nil, false
	return changed
}

// Heard reports whether all of a catalogue is there that is wanted.
func (r *Reader) Heard() bool { return r.now != nil && !r.lacks }

// Offer is the one of a name, nil if there is none that is wanted and can be used. It is not to be
// changed.
func (r *Reader) Offer(n Name) *Offer {
	if r.now == nil {
		return nil
	}
	return r.now.entries[n.String()].offer
}

// Names are those of the offers that can be used, and of those that are not wanted.
func (r *Reader) Names() []Name {
	var out []Name
	if r.now != nil {
		for name, h := range r.now.entries {
			if h.why == "" {
				out = append(out, nameOf(name))
			}
		}
	}
	return out
}

// Refused are why entries cannot be used, by what they are called where that can be a name.
func (r *Reader) Refused(peer string) []Problem {
	if r.now == nil {
		return nil
	}
	var out []Problem
	for name, h := range r.now.entries {
		if h.why != "" {
			out = append(out, Problem{Name: nameOf(name), Peer: peer, Code: catalogue.ServiceRefused, Detail: h.why})
		}
	}
	return out
}

// Take reads a message, and gives the names whose offers may have changed. What is kept of it adds at
// most room bytes of JSON to what is kept, see [Reader.Kept]. A message that leads on from another
// version than is there changes nothing; Has tells. After an error, of a message that cannot be one
// or has no room, nothing that counts has changed either.
func (r *Reader) Take(m Message, room int) ([]Name, error) {
	b := r.base(m.Base)
	if b == nil {
		return nil, nil
	}
	if m.Base == "" && r.next != nil { // this takes its room
		room += r.next.kept
		r.next = nil
	}
	names := make([]string, len(m.Set))
	count, size := len(b.entries), b.size
	out, in := map[string]bool{}, map[string]bool{}
	leave := func(name string) { // it makes room once, however often it is named
		if h, there := b.entries[name]; there && !out[name] {
			out[name] = true
			count, size = count-1, size-h.size
			if h.offer != nil {
				room += h.size
			}
		}
	}
	for _, name := range m.Gone {
		leave(name)
	}
	for i, text := range m.Set {
		var called struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(text, &called); err != nil || called.Name == "" || len(called.Name) > maxName {
			return nil, errors.New("an entry has no name")
		}
		if in[called.Name] {
			return nil, errors.New("an entry is there twice")
		}
		leave(called.Name)
		in[called.Name], names[i] = true, called.Name
		count, size = count+1, size+len(text)
		if r.keeps(called.Name) {
			room -= len(text)
		}
	}
	if count > MaxServices || size > MaxCatalogue || room < 0 {
		r.next = nil
		return nil, ErrTooMany
	}
	if m.Base == "" {
		r.next = b
	} else if b == r.now {
		r.next = nil
	}
	var changed []Name
	for _, name := range m.Gone {
		if _, there := b.entries[name]; there {
			b.remove(name)
			changed = append(changed, nameOf(name))
		}
	}
	for i, text := range m.Set {
		b.set(names[i], text, r.keeps(names[i]))
		changed = append(changed, nameOf(names[i]))
	}
	if b == r.now {
		return changed, nil
	}
	if m.More {
		return nil, nil
	}
	changed = r.all(nil)
	r.now, r.next, r.lacks = b, nil, false
	return r.all(changed), nil
}

// keeps reports whether an entry is decoded. One that has no name that can be is refused for that.
func (r *Reader) keeps(name string) bool {
	n := nameOf(name)
	return n == (Name{}) || r.wants(n.Namespace)
}

// base is the catalogue that a version leads on from.
func (r *Reader) base(version string) *book {
	switch {
	case version == "":
		return newBook()
	case r.next != nil && version == r.next.digest.String():
		return r.next
	case r.Heard() && version == r.now.digest.String():
		return r.now
	}
	return nil
}

func (r *Reader) all(out []Name) []Name {
	if r.now != nil {
		for name := range r.now.entries {
			out = append(out, nameOf(name))
		}
	}
	return out
}

func (b *book) remove(name string) {
	if h, there := b.entries[name]; there {
		b.digest.flip(h.sum)
		b.size -= h.size
		if h.offer != nil {
			b.kept -= h.size
		}
		delete(b.entries, name)
	}
}

func (b *book) set(name string, text json.RawMessage, keep bool) {
	b.remove(name)
	h := held{sum: sha256.Sum256(text), size: len(text)}
	if keep {
		o, err := decode(text)
		switch {
		case err != nil:
			h.why = err.Error()
		case o.Name.String() != name: // which JSON can hide in another case of the field's name
			h.why = "it has two names"
		default:
			h.offer = o
			b.kept += h.size
		}
	}
	b.digest.flip(h.sum)
	b.size += h.size
	b.entries[name] = h
}

// nameOf is the name that a text is, or none.
func nameOf(s string) Name {
	for i := range len(s) {
		if s[i] == '/' {
			if n := (Name{s[:i], s[i+1:]}); isLabel(n.Namespace) && isLabel(n.Name) {
				return n
			}
			break
		}
	}
	return Name{}
}

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
