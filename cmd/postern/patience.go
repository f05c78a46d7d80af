package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/admin"
)

const (
	// settling is how long a command waits for something that was just started: a gateway, or a
	// peering. On a busy machine either takes seconds.
	settling = 10 * time.Second
	// askAgain is the pause between two attempts.
	askAgain = 200 * time.Millisecond
)

// waits makes commands typed right after `postern gateway &` wait for the gateway.
func (a *app) waits(commands ...*cobra.Command) []*cobra.Command {
	for _, c := range commands {
		run := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			a.patience = settling
			return run(c, args)
		}
	}
	return commands
}

// unexplained is how long a terminal may show nothing while a command waits.
const unexplained = time.Second

// meanwhile shows on a terminal what the command waits for, once that takes a while, until done is
// called.
func (a *app) meanwhile(text string) (done func()) {
	if _, there := terminal(a.stderr); !there {
		return func() {}
	}
	return shown(a.stderr, text, unexplained)
}

// shown writes text to a terminal after a delay, and removes it when done is called.
func shown(to io.Writer, text string, after time.Duration) (done func()) {
	var once sync.Once // done comes first, or waits until the text is there
	written := false
	timer := time.AfterFunc(after, func() {
		once.Do(func() {
			written = true
			fmt.Fprint(to, text)
		})
	})
	return func() {
		timer.Stop()
		once.Do(func() {})
		if written {
			fmt.Fprint(to, "\r\x1b[K")
		}
	}
}

// soon retries while the gateway says that the result is still being prepared.
func soon[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for until := time.Now().Add(settling); ; {
		got, err := ask()
		var answer *admin.Error
		if !errors.As(err, &answer) || !answer.Soon || !time.Now().Add(askAgain).Before(until) {
			return got, err
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return got, context.Cause(ctx)
		}
	}
}
