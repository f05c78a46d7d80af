package main

import (
	"context"
	"errors"
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
