package mcs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestTurns(t *testing.T) {
	type item struct {
		of    string
		takes int
		has   bool
	}
	list := []item{{"a", 2, false}, {"a", 3, false}, {"a", 9, true}, {"b", 1, false}, {"b", 2, true}, {"c", 5, false}}
	got := Turns(list, func(i item) (string, int, bool) { return i.of, i.takes, i.has })
	if want := []item{{"b", 2, true}, {"b", 1, false}, {"c", 5, false}, {"a", 9, true}, {"a", 2, false}, {"a", 3, false}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Services of one namespace, however many or large, leave room for those of others, even for those
// that change and those that are added later.
func TestNoNamespaceTakesAllOfACatalogue(t *testing.T) {
	named := func(namespace string, i, size int) *Entry {
		return entry(t, web(fmt.Sprint("w-", i), func(o *Offer) {
			o.Name.Namespace = namespace
			o.Spec.Annotations = map[string]string{"a": strings.Repeat("x", size)}
		}))
	}
	for _, c := range []struct{ greedy, size int }{{MaxServices + 10, 1}, {700, 8000}} {
		w, entries := NewWriter(), map[string]*Entry{}
		fill := func(want ...*Entry) {
			t.Helper()
			rest := w.Fill(entries)
			if len(rest) == 0 || len(rest)+len(w.Names()) != len(entries) || len(w.want) > MaxServices || w.size > MaxCatalogue {
				t.Errorf("of %d services %d are told and %d are not", len(entries), len(w.want), len(rest))
			}
			for _, e := range want {
				if w.want[e.Name] != e {
					t.Errorf("%s is not told as it is", e.Name)
				}
			}
		}
		for i := range c.greedy {
			e := named("a", i, c.size)
			entries[e.Name] = e
		}
		fill()
		before := w.Names()
		fill()
		if !slices.Equal(w.Names(), before) {
			t.Error("others are told although nothing has changed")
		}
		other := []*Entry{named("b", 1, 1), named("c", 1, 1), named("c", 2, 1)}
		for _, e := range other {
			entries[e.Name] = e
		}
		fill(other...)
		grown := named("b", 1, 4000)
		entries[grown.Name] = grown
		fill(grown, other[1], other[2])
		r := reader()
		exchange(t, w, r)
		if !slices.Equal(names(r), w.Names()) {
			t.Error("they differ after all were exchanged")
		}
	}
}

// A service that grows keeps its place in a catalogue that is full.
func TestAServiceThatGrowsStays(t *testing.T) {
	sized := func(i, size int) *Entry {
		return entry(t, web(fmt.Sprint("w-", i), func(o *Offer) { o.Spec.Annotations = map[string]string{"a": strings.Repeat("x", size)} }))
	}
	w, entries := NewWriter(), map[string]*Entry{}
	for i := range 1100 {
		e := sized(100+i, 4000)
		entries[e.Name] = e
	}
	w.Fill(entries)
	exchange(t, w, reader())
	first := sized(0, 4000) // by name
	entries[first.Name] = first
	grown := sized(100, 7000)
	entries[grown.Name] = grown
	if w.Set(grown.Name, grown) {
		t.Fatal("there is room")
	}
	w.Fill(entries)
	if !w.Contains(grown.Name) || w.Contains(first.Name) {
		t.Errorf("the service that has grown is told: %v; one that was not: %v", w.Contains(grown.Name), w.Contains(first.Name))
	}
}
