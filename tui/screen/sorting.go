package screen

import "slices"

// sorting is what a view's rows are ordered by; views embed it to be sortable.
type sorting struct {
	columns []string
	// greatestFirst are the columns whose greatest values are the most interesting.
	greatestFirst []string

	column     string
	descending bool
}

func (s *sorting) sortColumns() []string { return s.columns }

func (s *sorting) sortedBy() (column string, descending bool) { return s.column, s.descending }

// sortBy takes a column, or turns the order round if it is that already.
func (s *sorting) sortBy(column string) {
	if column == s.column {
		s.descending = !s.descending
		return
	}
	s.column, s.descending = column, slices.Contains(s.greatestFirst, column)
}

// directed turns the result of a comparison round where the greatest come first.
func (s *sorting) directed(c int) int {
	if s.descending {
		return -c
	}
	return c
}
