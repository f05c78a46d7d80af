package screen

import (
	"slices"
	"time"
)

// sorting is the order of a view's rows; views embed it to be sortable.
type sorting struct {
	columns []string
	// greatestFirst are the columns that are sorted in descending order at first.
	greatestFirst []string

	column     string
	descending bool
}

func (s *sorting) sortColumns() []string { return s.columns }

func (s *sorting) sortedBy() (column string, descending bool) { return s.column, s.descending }

// sortBy sorts by a column, or reverses the order if it already is the sort column.
func (s *sorting) sortBy(column string) {
	if column == s.column {
		s.descending = !s.descending
		return
	}
	s.column, s.descending = column, slices.Contains(s.greatestFirst, column)
}

// directed negates a comparison if the order is descending.
func (s *sorting) directed(c int) int {
	if s.descending {
		return -c
	}
	return c
}

// arrow is the sign of the order.
func (s *sorting) arrow() string {
	if s.descending {
		return "▼"
	}
	return "▲"
}

// timeOf is a time to sort by; there being none counts as the earliest.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
