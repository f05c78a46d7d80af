package mcs

import (
	"cmp"
	"slices"
)

// Turns sorts a list by which items to take first if there is no room for all. of returns an item's
// holder, such as a namespace, how much room it takes, and whether it has its place already. Of a
// holder's items, those that have a place come first, so that what works does not lose it to what
// is new; otherwise they keep their order. An item comes the earlier the less its holder takes up
// to and including it, so that no holder leaves the others without room, however many items it has.
func Turns[T any, H comparable](list []T, of func(T) (holder H, takes int, has bool)) []T {
	type item struct {
		value T
		total int // of the holder, with this one
	}
	totals := map[H]int{}
	items := make([]item, 0, len(list))
	for _, first := range []bool{true, false} {
		for _, value := range list {
			if holder, takes, has := of(value); has == first {
				totals[holder] += takes
				items = append(items, item{value, totals[holder]})
			}
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.total, b.total) })
	out := make([]T, len(items))
	for i, x := range items {
		out[i] = x.value
	}
	return out
}
