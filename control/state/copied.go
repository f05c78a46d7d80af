package state

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// CodeNotKept is the code of the warnings about a backend that does not store the files.
const CodeNotKept = "PST0713"

// storeBoth writes next to the backend and then to the file, and publishes it as soon as the
// backend has it: an unwritable directory undoes nothing. For a lazy format the order is reversed.
// The caller has the turn.
func (d *document[T]) storeBoth(next *content[T], how manner) error {
	before := d.stored.Load()
	c := next.as(max(d.highest, before.generation) + 1)
	if d.lazy {
		d.highest = c.generation
		if err := d.write(c, d.kept); err != nil && !errors.Is(err, ErrNotDurable) {
			return err
		}
		d.mirror.later(d.base, lazyEvery)
		return nil
	}
	if err := d.save(c, how); err != nil {
		return err
	}
	if err := d.write(c, ""); err != nil && !errors.Is(err, ErrNotDurable) {
		d.stored.Store(c)
		d.current.Store(c)
		d.logger.Warn("failed to write the state directory; keeping the change outside of it",
			slog.String("file", d.path("")), slog.Any("error", advised(err, "")))
		return nil
	}
	d.writeTwice(before, c)
	return nil
}

// save sends c to the backend. After an error nobody knows whether it arrived, so the current
// content is saved over it as soon as possible.
func (d *document[T]) save(c *content[T], how manner) error {
	b, err := d.file(c, "")
	if err != nil {
		return fmt.Errorf("store %s: %w", d.path(""), err)
	}
	sent, err := d.mirror.save(d.base, b, how)
	if err != nil {
		if sent {
			d.highest, d.doubtful = max(d.highest, c.generation), true
			d.mirror.later(d.base, retryAfter)
		}
		return fmt.Errorf("store %s: %w", d.base, err)
	}
	d.highest, d.doubtful = max(d.highest, c.generation), false
	d.kept = version(c.generation, checksum(c.body))
	return nil
}

// goAhead writes what the backend did not store to the directory alone, marked as such.
func (d *document[T]) goAhead(c *content[T]) {
	d.highest++
	ahead := c.as(d.highest)
	err := d.writeFile(ahead, d.kept)
	if err == nil && d.narrows != nil && d.narrows(d.stored.Load().value, c.value) {
		err = d.writeFile(ahead, d.kept) // so that the previous generation does not restore it
	}
	if err != nil && !errors.Is(err, ErrNotDurable) {
		d.logger.Warn("failed to store a revocation in the state directory, too",
			slog.String("file", d.path("")), slog.Any("error", advised(err, "")))
	}
}

// pushLazily saves the current content without holding the turn: one goroutine at a time calls it.
func (d *document[T]) pushLazily() error {
	c := d.stored.Load()
	b, err := d.file(c, "")
	if err != nil {
		return fmt.Errorf("store %s: %w", d.path(""), err)
	}
	if _, err := d.mirror.save(d.base, b, probing); err != nil {
		return fmt.Errorf("store %s: %w", d.base, err)
	}
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	d.kept = version(c.generation, checksum(c.body))
	return nil
}

// settle saves the current content if the backend may have another.
func (d *document[T]) settle() error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	now, stored := d.current.Load(), d.stored.Load()
	if d.closed || !d.doubtful && bytes.Equal(now.body, stored.body) {
		return nil
	}
	c := now.as(max(d.highest, stored.generation) + 1)
	if err := d.save(c, probing); err != nil {
		return err
	}
	if err := d.write(c, ""); err != nil && !errors.Is(err, ErrNotDurable) {
		d.stored.Store(c)
		d.current.Store(c)
		return nil // the directory is only the copy
	}
	d.writeTwice(stored, c)
	return nil
}

// follow connects a newly opened document to the backend, as reconcile left it.
func (d *document[T]) follow(m *mirror, r reconciled) {
	d.mirror, d.kept = m, r.kept
	m.push[d.base] = d.settle
	if d.lazy {
		m.push[d.base] = d.pushLazily
	}
	d.highest = max(d.highest, r.highest)
	c := d.current.Load()
	// A damaged file that starts empty is to be saved, too.
	renewed := !strings.HasSuffix(r.kept, checksum(c.body)) && (r.there != nil || c.generation > 0)
	if !r.unsaved && !renewed {
		return
	}
	old := &content[T]{value: d.clone(c.value)} // unknown, so assume that it has nothing
	if r.there != nil {
		if there, err := d.parse(r.there); err == nil {
			old = there
		}
	}
	if !d.lazy {
		d.stored.Store(old)
	}
	m.later(d.base, 0)
}
