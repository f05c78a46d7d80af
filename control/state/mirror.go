package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// saveTimeout bounds one Load or Save. API servers answer in milliseconds; operators and peers
	// wait for this.
	saveTimeout = 5 * time.Second
	// briefTimeout bounds a Save that others wait behind, or that is not worth the wait: a
	// revocation has to be in force within 5 s, including the wait for another's turn.
	briefTimeout = 2 * time.Second
	// awayFor is how long changes are refused at once after the backend let a Save run into
	// saveTimeout.
	awayFor = 10 * time.Second
	// lazyEvery is the least time between saves of what can be learned again.
	lazyEvery = 30 * time.Second
	// retryAfter is the pause after a failed Save with an unknown outcome.
	retryAfter = 5 * time.Second
	// closeTimeout bounds the saves at the end.
	closeTimeout = 5 * time.Second
)

// errAway: the backend did not answer a moment ago.
var errAway = errors.New("it did not answer in time just now, and is being asked again")

// mirror is a store's side of its [Backend]: it bounds every call, and has a goroutine that saves
// in the background.
type mirror struct {
	backend Backend
	logger  *slog.Logger
	wake    wake.Signal // holds at most one
	stop    context.CancelFunc
	done    chan struct{}
	// push saves a document, by file name. It is complete before run starts.
	push map[string]func() error

	mu      sync.Mutex
	ctx     context.Context // of the calls: the store's life, then that of its end
	due     map[string]time.Time
	pushed  map[string]time.Time // when a document was last pushed, or tried
	away    time.Time            // until when nobody waits for the backend
	fenced  bool
	ailing  bool // a push failed and was logged
	failure error
	stopped bool
}

func newMirror(b Backend, logger *slog.Logger) *mirror {
	m := &mirror{
		backend: b, logger: logger, wake: wake.New(), done: make(chan struct{}),
		push: map[string]func() error{}, due: map[string]time.Time{}, pushed: map[string]time.Time{},
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// load is the backend's Load with a timeout.
func (m *mirror) load() (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(m.ctx, saveTimeout)
	defer cancel()
	return m.backend.Load(ctx)
}

// manner is how a file is saved.
type manner struct {
	limit time.Duration
	// probing also tries a backend that is away.
	probing bool
}

var (
	promptly = manner{limit: saveTimeout}
	briefly  = manner{limit: briefTimeout}
	probing  = manner{limit: briefTimeout, probing: true}
	firmly   = manner{limit: saveTimeout, probing: true}
)

// save is the backend's Save with a timeout. Its errors are an [ErrBackend]. sent reports whether
// the backend may have got it.
func (m *mirror) save(name string, b []byte, how manner) (sent bool, err error) {
	m.mu.Lock()
	base, fenced, away := m.ctx, m.fenced, time.Now().Before(m.away)
	m.mu.Unlock()
	switch {
	case fenced:
		return false, fmt.Errorf("%w: %w", ErrBackend, ErrFenced)
	case away && !how.probing:
		return false, fmt.Errorf("%w: %w", ErrBackend, errAway)
	}
	ctx, cancel := context.WithTimeout(base, how.limit)
	defer cancel()
	err = m.backend.Save(ctx, name, b)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = err
	switch {
	case err == nil:
		m.away = time.Time{}
		return true, nil
	case errors.Is(err, ErrFenced):
		m.fenced = true
		sent = false
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		m.away = time.Now().Add(awayFor)
		sent = true
	default:
		sent = true
	}
	return sent, fmt.Errorf("%w: %w", ErrBackend, err)
}

// later schedules a push of a document: at once, or when since has passed after its last push.
func (m *mirror) later(name string, since time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.pushed[name].Add(since)
	if old, ok := m.due[name]; !ok || at.Before(old) {
		m.due[name] = at
	}
	m.wake.Set()
}

// run pushes what is due until the mirror is stopped.
func (m *mirror) run(ctx context.Context) {
	defer close(m.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := m.turn(ctx)
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
		}
	}
}

// turn pushes what is due and returns the time until the next push.
func (m *mirror) turn(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		name, wait := m.next(time.Now())
		if name == "" {
			return wait
		}
		m.try(name)
	}
	return time.Hour
}

// next returns what is due, or the time until something is.
func (m *mirror) next(now time.Time) (name string, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait = time.Hour
	for n, at := range m.due {
		if left := at.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		delete(m.due, n)
		m.pushed[n] = now
		return n, 0
	}
	return "", wait
}

// try pushes a document, logs the first failure of an outage, and schedules a retry.
func (m *mirror) try(name string) {
	err := m.push[name]()
	m.mu.Lock()
	was := m.ailing
	m.ailing = err != nil
	quiet := was || m.fenced || m.stopped // the end tries again
	m.mu.Unlock()
	switch {
	case err == nil && was:
		m.logger.Info("state is stored outside this pod again", slog.String("file", name))
	case err != nil:
		if !quiet {
			m.logger.Warn("failed to store state outside this pod; refusing changes until it succeeds",
				slog.String("code", CodeNotKept), slog.String("file", name), slog.Any("error", err))
		}
		m.later(name, retryAfter)
	}
}

// finish stops the goroutine and leaves closeTimeout for the remaining saves.
func (m *mirror) finish() context.CancelFunc {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.stop()
	<-m.done
	m.mu.Lock()
	defer m.mu.Unlock()
	var cancel context.CancelFunc
	m.ctx, cancel = context.WithTimeout(context.Background(), closeTimeout)
	return cancel
}

// rest pushes everything that is still to be pushed, due or not.
func (m *mirror) rest() {
	m.mu.Lock()
	var names []string
	if !m.fenced { // otherwise another gateway saves it
		names = slices.Sorted(maps.Keys(m.due))
	}
	clear(m.due)
	m.mu.Unlock()
	for _, n := range names {
		if err := m.push[n](); err != nil {
			m.logger.Warn("failed to store a state file outside this pod before stopping",
				slog.String("code", CodeNotKept), slog.String("file", n), slog.Any("error", err))
		}
	}
}
