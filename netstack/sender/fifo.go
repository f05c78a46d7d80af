package sender

import "slices"

// fifo is a queue in an array whose free front is used again. A slice that grows at one end and is
// cut at the other moves to a new array each time that all of its items have been replaced: with
// what is in flight at 1 Gbit/s and 200 ms that made 30 MB of garbage a second. The zero value is
// empty.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) empty() bool { return q.head == len(q.items) }

// all is the queue, the first item first. It is valid until the next change.
func (q *fifo[T]) all() []T { return q.items[q.head:] }

func (q *fifo[T]) first() *T { return &q.items[q.head] }

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }

// insert makes v the item with the index i.
func (q *fifo[T]) insert(i int, v T) { q.items = slices.Insert(q.items, q.head+i, v) }

// pop removes the first n items.
func (q *fifo[T]) pop(n int) {
	clear(q.items[q.head : q.head+n])
	if q.head += n; q.head > len(q.items)/2 {
		q.items, q.head = slices.Delete(q.items, 0, q.head), 0
	}
}

func (q *fifo[T]) remove(is func(T) bool) {
	q.items = append(q.items[:q.head], slices.DeleteFunc(q.items[q.head:], is)...)
}
