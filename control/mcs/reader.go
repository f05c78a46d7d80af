package mcs

import (
	"crypto/sha256"
	"encoding/json"
	"errors"

	"github.com/postern-dev/postern/control/catalogue"
)

// held is an entry that was read: an offer, the reason why it is refused, or nothing if it is not
// wanted.
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

func (b *book) set(name string, h held) {
	b.remove(name)
	b.digest.flip(h.sum)
	b.size += h.size
	if h.offer != nil {
		b.kept += h.size
	}
	b.entries[name] = h
}

// read reads an entry, of which the offer is decoded only if it is kept.
func read(name string, text json.RawMessage, keep bool) held {
	h := held{sum: sha256.Sum256(text), size: len(text)}
	if keep {
		o, err := decode(text)
		switch {
		case err != nil:
			h.why = err.Error()
		case o.Name.String() != name: // JSON also accepts the field's name in another case
			h.why = "it has two names"
		default:
			h.offer = o
		}
	}
	return h
}

// Reader stores one peer's catalogue. It is not safe for concurrent use.
type Reader struct {
	now   *book // nil until complete
	next  *book // while a new catalogue is not complete
	wants func(namespace string) bool
	// lacks: some entries are wanted now that were not when they arrived.
	lacks bool
	// tooMany: a catalogue, or a change of the one in use, was refused as too large, and none was
	// accepted since.
	tooMany bool
}

// NewReader returns a reader that keeps entries in the namespaces that wants selects.
func NewReader(wants func(namespace string) bool) *Reader { return &Reader{wants: wants} }

// Want selects other namespaces to keep. It reports whether the peer has to send everything again.
// Until then the catalogue counts as not received.
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

// Kept returns the size of the entries that are kept whole, in bytes of JSON.
func (r *Reader) Kept() int {
	kept := 0
	for _, b := range []*book{r.now, r.next} {
		if b != nil {
			kept += b.kept
		}
	}
	return kept
}

// Has returns the version of the catalogue as far as it was read; "" before there is one.
func (r *Reader) Has() string {
	switch {
	case r.next != nil:
		return r.next.digest.String()
	case r.Complete():
		return r.now.digest.String()
	}
	return ""
}

// Clear empties the catalogue, and returns the names whose offers may have changed.
func (r *Reader) Clear() []Name {
	was := r.now
	r.now, r.next, r.lacks, r.tooMany = newBook(), nil, false, false
	return r.now.since(was)
}

// Drop is Clear for lack of room: TooMany reports it until there is a catalogue again.
func (r *Reader) Drop() []Name {
	names := r.Clear()
	r.tooMany = true
	return names
}

// Complete reports whether everything wanted of a catalogue was received.
func (r *Reader) Complete() bool { return r.now != nil && !r.lacks }

// TooMany reports whether the peer announced more than [MaxServices] or [MaxCatalogue], or than
// there was room for, since the catalogue that is in use.
func (r *Reader) TooMany() bool { return r.tooMany }

// Offer returns the offer of a name, or nil if there is none that is wanted and valid. It must not
// be changed.
func (r *Reader) Offer(n Name) *Offer {
	if r.now == nil {
		return nil
	}
	return r.now.entries[n.String()].offer
}

// Names returns the names of valid offers, and of those that are not wanted.
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

// Refused returns why entries are invalid, by their names if those are valid.
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

// Take applies a message, and returns the names whose offers may have changed. If it adds to what is
// kept, see [Reader.Kept], room is asked whether so many bytes of JSON have room; nil is always. A
// message based on another version changes nothing; Has tells the current one. After an error, for
// an invalid message or lack of room, nothing in effect has changed either.
func (r *Reader) Take(m Message, room func(bytes int) bool) ([]Name, error) {
	b := r.base(m.Base)
	if b == nil {
		return nil, nil
	}
	if m.Base == "" { // the new one takes its room
		r.next = nil
	}
	names, entries := make([]string, len(m.Set)), make([]held, len(m.Set))
	count, size, more := len(b.entries), b.size, 0
	out, in := map[string]bool{}, map[string]bool{}
	leave := func(name string) { // it makes room once, however often it is named
		if h, there := b.entries[name]; there && !out[name] {
			out[name] = true
			count, size = count-1, size-h.size
			if h.offer != nil {
				more -= h.size
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
		if entries[i] = read(called.Name, text, r.keeps(called.Name)); entries[i].offer != nil {
			more += len(text)
		}
	}
	if count > MaxServices || size > MaxCatalogue || more > 0 && room != nil && !room(more) {
		r.next, r.tooMany = nil, true
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
	for i, name := range names {
		b.set(name, entries[i])
		changed = append(changed, nameOf(name))
	}
	if b == r.now {
		r.tooMany = false
		return changed, nil
	}
	if m.More {
		return nil, nil
	}
	was := r.now
	r.now, r.next, r.lacks, r.tooMany = b, nil, false, false
	return b.since(was), nil
}

// keeps reports whether an entry is decoded. One with an invalid name is, so that it is refused.
func (r *Reader) keeps(name string) bool {
	n := nameOf(name)
	return n == (Name{}) || r.wants(n.Namespace)
}

// base returns the catalogue with a version.
func (r *Reader) base(version string) *book {
	switch {
	case version == "":
		return newBook()
	case r.next != nil && version == r.next.digest.String():
		return r.next
	case r.Complete() && version == r.now.digest.String():
		return r.now
	}
	return nil
}

// since returns the names that differ from an earlier book, or nil if there was none.
func (b *book) since(was *book) (changed []Name) {
	if was == nil {
		was = newBook()
	}
	for name, h := range b.entries {
		if g, there := was.entries[name]; !there || g.sum != h.sum || g.why != h.why || (g.offer == nil) != (h.offer == nil) {
			changed = append(changed, nameOf(name))
		}
	}
	for name := range was.entries {
		if _, there := b.entries[name]; !there {
			changed = append(changed, nameOf(name))
		}
	}
	return changed
}
