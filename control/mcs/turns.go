package mcs

import (
	"cmp"
	"slices"
)

// Turns puts a list in the order in which its items are to be taken where not all have room. Each is of
// a holder, such as a namespace, and takes so much; the items of a holder stay in their order. Items
// with which their holder has less come first, so nobody leaves the others without room, however many
// items it has.
func Turns[T any, H comparable](list []T, of func(T) (holder H, takes int)) []T {
	type item struct {
		value T
		total int // of the holder, with this one
	}
	totals := map[H]int{}
	items := make([]item, len(list))
	for i, value := range list {
		holder, takes := of(value)
		totals[holder] += takes
		items[i] = item{value, totals[holder]}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.total, b.total) })
	out := make([]T, len(items))
	for i, x := range items {
		out[i] = x.value
	}
	return out
}
