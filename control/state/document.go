package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	minorVersion = 0
	// maxFile bounds what is read: some 20,000 peers.
	maxFile = 64 << 20
	// maxHeader bounds the first line.
	maxHeader = 1 << 10
)

// header is the first line of a file.
type header struct {
	Format     string `json:"format"`
	Version    string `json:"version"`
	Generation uint64 `json:"generation"`
	Checksum   string `json:"checksum"`
	// Ahead is the backend's version, if the directory's is newer.
	Ahead string `json:"ahead,omitempty"`
}

// format says how a T is written and how it may be recovered.
type format[T any] struct {
	// name in the header, after "postern/".
	name  string
	major int
	// migrate converts the body of a major version to the next one's, by the older version.
	migrate map[int]func(json.RawMessage) (json.RawMessage, error)
	encode  func(T) (any, error)
	decode  func(json.RawMessage) (T, error)
	clone   func(T) T
	// narrows reports whether going back from new to old would restore a revoked right. nil: never.
	narrows func(old, new T) bool
	// reduce returns old without what new revokes, and without anything that new adds. nil: such a
	// document is only ever updated.
	reduce func(old, new T) T
	// loss says what is lost with the file; empty: too much to start without it.
	loss string
	// previousIsUnsafe: an earlier generation must not be restored.
	previousIsUnsafe bool
	// lazy: a change is in force before the backend has it.
	lazy bool
}

// place is where a document is stored.
type place struct {
	dir, base string
	disk      disk
	logger    *slog.Logger
	mirror    *mirror // nil: no backend
}

func (p place) path(suffix string) string { return filepath.Join(p.dir, p.base+suffix) }

const previous = ".previous"

// content is what a document's readers see. It is immutable.
type content[T any] struct {
	value      T
	unknown    Unknown // of the document itself; those of entries are in value
	body       []byte
	generation uint64
}

// as returns the same content as another generation.
func (c *content[T]) as(generation uint64) *content[T] {
	next := *c
	next.generation = generation
	return &next
}

// document is one file and its content in memory. The two are the same, except for revocations that
// could not be written to the file.
type document[T any] struct {
	place
	format[T]
	turn    chan struct{}              // one slot: held by the writer
	current atomic.Pointer[content[T]] // what readers see
	stored  atomic.Pointer[content[T]] // what the file has or, with a backend, what that has

	// Owned by the holder of turn.
	closed bool
	// highest is the highest generation ever sent to a backend or found.
	highest uint64
	// kept is the backend's version.
	kept string
	// doubtful: a Save failed, so the backend may have something that is not in force.
	doubtful bool
}

func openDocument[T any](p place, f format[T]) (*document[T], error) {
	d := &document[T]{place: p, format: f, turn: make(chan struct{}, 1)}
	c, err := d.recover()
	if err != nil {
		return nil, err
	}
	d.current.Store(c)
	d.stored.Store(c)
	d.highest = c.generation
	return d, nil
}

// openNext is openDocument, unless an earlier one has failed.
func openNext[T any](p place, f format[T], failed *error) *document[T] {
	if *failed != nil {
		return nil
	}
	d, err := openDocument(p, f)
	*failed = err
	return d
}

func (d *document[T]) load() T { return d.current.Load().value }

func (d *document[T]) close() {
	d.turn <- struct{}{}
	d.closed = true
	<-d.turn
}

// update changes a document: copy, change, write, publish. If it cannot be written nothing changes.
func (d *document[T]) update(f func(*T) error) error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	next, err := d.prepare(f)
	if err != nil {
		return err
	}
	return remedy(d.store(next, promptly))
}

// create writes the first generation, unless there is one or a backend, so that the file is missed once
// it is gone.
func (d *document[T]) create() error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	c := d.stored.Load()
	if d.closed || d.mirror != nil || c.generation != 0 {
		return nil
	}
	return d.write(c.as(1), "")
}

// restrict is update, but what f revokes is in force even if it cannot be written: the error is
// then an [ErrNotStored].
func (d *document[T]) restrict(f func(*T) error) error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	next, err := d.prepare(f)
	if err != nil {
		return err
	}
	cause := d.store(next, briefly)
	if cause == nil || errors.Is(cause, ErrNotDurable) {
		return cause
	}
	old := d.current.Load()
	less, err := d.content(d.reduce(old.value, next.value))
	if err != nil {
		return errors.Join(cause, err)
	}
	if bytes.Equal(less.body, old.body) && !bytes.Equal(next.body, old.body) {
		return remedy(cause) // nothing was revoked
	}
	less.generation = old.generation
	d.current.Store(less)
	if d.mirror != nil { // so that it lasts as long as the directory does
		d.goAhead(less)
	}
	return fmt.Errorf("%w: %w", ErrNotStored, advised(cause, ""))
}

// flush writes what an earlier restrict could not.
func (d *document[T]) flush() error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	if d.closed {
		return ErrClosed
	}
	return advised(d.storeAnyway(d.current.Load(), briefly), "")
}

// unstored reports whether memory is ahead of the file.
func (d *document[T]) unstored() bool {
	return !bytes.Equal(d.current.Load().body, d.stored.Load().body)
}

// prepare runs f on a copy. The caller has the turn, as for store.
func (d *document[T]) prepare(f func(*T) error) (*content[T], error) {
	if d.closed {
		return nil, ErrClosed
	}
	next := d.clone(d.current.Load().value)
	if err := f(&next); err != nil {
		return nil, err
	}
	return d.content(next)
}

func (d *document[T]) content(v T) (*content[T], error) {
	more := d.current.Load().unknown
	body, err := d.marshal(v, more)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", d.path(""), err)
	}
	return &content[T]{value: d.clone(v), unknown: more, body: body}, nil
}

// store writes next unless it is already stored, and publishes it. how is for the backend.
func (d *document[T]) store(next *content[T], how manner) error {
	before := d.stored.Load()
	if bytes.Equal(next.body, before.body) {
		d.current.Store(before)
		return nil
	}
	if d.mirror != nil {
		return d.storeBoth(next, how)
	}
	c := next.as(before.generation + 1)
	if err := d.write(c, ""); err != nil {
		return err
	}
	d.writeTwice(before, c)
	return nil
}

// storeAnyway is store for when the backend's content is unknown.
func (d *document[T]) storeAnyway(next *content[T], how manner) error {
	if d.mirror != nil && d.doubtful {
		return d.storeBoth(next, how)
	}
	return d.store(next, how)
}

// writeTwice keeps the previous generation from restoring what was revoked.
func (d *document[T]) writeTwice(before, c *content[T]) {
	if d.narrows == nil || !d.narrows(before.value, c.value) {
		return
	}
	again := c
	if d.mirror == nil { // otherwise both copies have the same
		again = c.as(c.generation + 1)
	}
	if err := d.write(again, ""); err != nil {
		d.logger.Warn("state file changed, but its previous generation still holds what was revoked",
			slog.String("file", d.path("")), slog.Any("error", advised(err, "")))
	}
}

// write writes c to the file and publishes it. ahead is the backend's version if c is newer.
func (d *document[T]) write(c *content[T], ahead string) error {
	err := d.writeFile(c, ahead)
	if err == nil || errors.Is(err, ErrNotDurable) {
		d.stored.Store(c)
		d.current.Store(c) // memory says what the file says, durable or not
	}
	return err
}

// writeFile writes c to the file. The current file becomes the previous generation.
func (d *document[T]) writeFile(c *content[T], ahead string) error {
	b, err := d.file(c, ahead)
	if err != nil {
		return fmt.Errorf("store %s: %w", d.path(""), err)
	}
	if err := d.disk.succeed(d.dir, d.base, d.base+previous, b); err != nil {
		return fmt.Errorf("store %s: %w", d.path(""), err)
	}
	return nil
}

func (d *document[T]) marshal(v T, more Unknown) ([]byte, error) {
	enc, err := d.encode(v)
	if err != nil {
		return nil, err
	}
	b, err := more.marshal(enc)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if err := json.Indent(&body, b, "", " "); err != nil {
		return nil, err
	}
	body.WriteByte('\n')
	return body.Bytes(), nil
}

func (d *document[T]) file(c *content[T], ahead string) ([]byte, error) {
	h, err := json.Marshal(header{
		Format: "postern/" + d.name, Version: fmt.Sprintf("%d.%d", d.major, minorVersion),
		Generation: c.generation, Checksum: checksum(c.body), Ahead: ahead,
	})
	if err != nil {
		return nil, err
	}
	return append(append(h, '\n'), c.body...), nil
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// read reads the file with the suffix. Damage is an ErrDamaged.
func (d *document[T]) read(suffix string) (*content[T], error) {
	info, err := os.Stat(d.path(suffix))
	if errors.Is(err, fs.ErrNotExist) {
		if to, linkErr := os.Readlink(d.path(suffix)); linkErr == nil { // such as to a disk that is not mounted
			return nil, fmt.Errorf("it is a link to %s, which does not exist (restore that, or move the link away)", to)
		}
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // reading a pipe would wait for a writer
		return nil, fmt.Errorf("it is not a regular file, but of mode %s (move it away)", info.Mode())
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%w: %d bytes are too many", ErrDamaged, info.Size())
	}
	b, err := os.ReadFile(d.path(suffix))
	if err != nil {
		return nil, err
	}
	return d.parse(b)
}

// parse reads a file's bytes.
func (d *document[T]) parse(b []byte) (*content[T], error) {
	line, body, ok := bytes.Cut(b, []byte("\n"))
	if !ok || len(line) > maxHeader {
		return nil, fmt.Errorf("%w: it has no header", ErrDamaged)
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("%w: its header is not readable", ErrDamaged)
	}
	if want := "postern/" + d.name; h.Format != want {
		return nil, fmt.Errorf("%w: it is of format %.40q, not %q", ErrDamaged, h.Format, want)
	}
	if h.Checksum != checksum(body) {
		return nil, fmt.Errorf("%w: the checksum does not fit (cut short, or changed by hand?)", ErrDamaged)
	}
	major, err := majorOf(h.Version)
	if err != nil {
		return nil, err
	}
	if major > d.major {
		return nil, fmt.Errorf("%w (format version %s; this one reads %d): upgrade postern, or give it another spec.stateDir", ErrNewerVersion, h.Version, d.major)
	}
	raw := json.RawMessage(body)
	for ; major < d.major; major++ {
		step := d.migrate[major]
		if step == nil {
			return nil, fmt.Errorf("%w: there was no format version %d", ErrDamaged, major)
		}
		if raw, err = step(raw); err != nil {
			return nil, fmt.Errorf("%w: format version %d: %w", ErrDamaged, major, err)
		}
	}
	v, err := d.decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var zero T
	known, err := d.encode(zero)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.path(""), err)
	}
	return &content[T]{value: v, unknown: unknownOf(raw, known), body: body, generation: h.Generation}, nil
}

func majorOf(version string) (int, error) {
	s, minor, ok := strings.Cut(version, ".")
	major, err := strconv.ParseUint(s, 10, 16)
	if _, minorErr := strconv.ParseUint(minor, 10, 16); !ok || err != nil || minorErr != nil {
		return 0, fmt.Errorf("%w: it has no format version", ErrDamaged)
	}
	return int(major), nil
}

// recover reads the document, or what can replace it; see the package comment.
func (d *document[T]) recover() (*content[T], error) {
	c, err := d.read("")
	if err == nil {
		return c, nil
	}
	missing := errors.Is(err, fs.ErrNotExist)
	if !missing && !errors.Is(err, ErrDamaged) {
		return nil, fmt.Errorf("read %s: %w", d.path(""), err)
	}
	old, oldErr := d.read(previous)
	if missing && errors.Is(oldErr, fs.ErrNotExist) {
		return d.empty(0)
	}
	usable := oldErr == nil && !d.previousIsUnsafe
	if !usable && d.loss == "" {
		if missing {
			err = fmt.Errorf("%w: it is missing", ErrDamaged)
		}
		return nil, fmt.Errorf("%s: %w, and no intact earlier generation is beside it (%s: %v); nothing was changed: restore the file from a backup, or move it and %s away to start without what was in it",
			d.path(""), err, d.path(previous), oldErr, d.base+previous) //nolint:errorlint // a missing earlier generation is no missing document
	}
	kept := ""
	if !missing {
		kept = d.base + ".damaged-" + time.Now().UTC().Format("20060102T150405.000Z")
		if keepErr := d.disk.keep(d.dir, d.base, kept); keepErr != nil {
			instead := "its previous generation is intact and would take its place"
			if !usable {
				instead = "an empty one would take its place (lost: " + d.loss + ")"
			}
			return nil, fmt.Errorf("%s: %w; %s, but the damaged file cannot be kept aside: %w", d.path(""), err, instead, remedy(keepErr))
		}
	}
	if !usable {
		var emptyErr error
		if c, emptyErr = d.empty(1); emptyErr != nil {
			return nil, emptyErr
		}
		d.logger.Warn("state file damaged; starting empty", append(d.damage(err, kept), slog.String("lost", d.loss))...)
	} else {
		c = old.as(old.generation + 1)
		d.logger.Warn("state file damaged; using the previous generation", append(d.damage(err, kept), slog.Uint64("generation", old.generation))...)
	}
	b, err := d.file(c, "")
	if err != nil {
		return nil, fmt.Errorf("restore %s: %w", d.path(""), err)
	}
	if err := d.disk.replace(d.dir, d.base, b); err != nil {
		return nil, fmt.Errorf("restore %s: %w", d.path(""), remedy(err))
	}
	return c, nil
}

func (d *document[T]) empty(generation uint64) (*content[T], error) {
	var zero T
	body, err := d.marshal(zero, nil)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", d.path(""), err)
	}
	return &content[T]{value: zero, body: body, generation: generation}, nil
}

// damage returns the attributes of a warning that a file was damaged.
func (d *document[T]) damage(cause error, kept string) []any {
	return []any{
		slog.String("code", CodeDamaged), slog.String("file", d.path("")),
		slog.Any("error", cause), slog.String("keptAs", kept),
	}
}
