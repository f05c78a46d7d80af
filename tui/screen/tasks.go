package screen

import (
	"context"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// tasks runs slow calls outside of the program's goroutine, and waits for them at the end. Its
// methods may be called at any time.
type tasks struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

func newTasks(ctx context.Context) *tasks {
	ctx, cancel := context.WithCancel(ctx)
	return &tasks{ctx: ctx, cancel: cancel}
}

// run returns a command for a call whose context ends after limit at the latest.
func (t *tasks) run(limit time.Duration, call func(ctx context.Context) tea.Msg) tea.Cmd {
	return t.command(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return call(ctx)
	})
}

// command returns a command for a call with the context of all.
func (t *tasks) command(call func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return nil
		}
		t.group.Add(1)
		t.mu.Unlock()
		defer t.group.Done()
		return call(t.ctx)
	}
}

// after returns a command that delivers a message once a time has passed, even if the process was
// suspended in the meantime: what the message starts would not continue without it.
func (t *tasks) after(d time.Duration, msg tea.Msg) tea.Cmd {
	return t.command(func(ctx context.Context) tea.Msg {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return msg
		case <-ctx.Done():
			return nil
		}
	})
}

// close cancels all calls and waits for them.
func (t *tasks) close() {
	t.cancel()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.group.Wait()
}
