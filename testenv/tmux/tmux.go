// Package tmux runs a program in a terminal without a user: that of a private tmux server. It can
// type keys and read the screen, and draw it with [SVG].
package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options configure a terminal.
type Options struct {
	// Width and Height are in cells.
	Width, Height int
	// Args are the program and its arguments. Env is added to this process's environment, as
	// NAME=VALUE.
	Args, Env []string
}

// Terminal is a terminal in which a program runs. It ends with the program.
type Terminal struct {
	dir    string
	server *exec.Cmd
	said   bytes.Buffer
	ended  chan struct{}
}

// Open starts the program. It needs tmux. The terminal ends at the latest with ctx.
func Open(ctx context.Context, o Options) (*Terminal, error) {
	dir, err := os.MkdirTemp("", "terminal-")
	if err != nil {
		return nil, err
	}
	t := &Terminal{dir: dir, ended: make(chan struct{})}
	// Not as a daemon, so that it always ends with ctx.
	t.server = exec.CommandContext(ctx, "tmux", "-D", "-S", t.socket(), "-f", os.DevNull)
	t.server.Stdout, t.server.Stderr = &t.said, &t.said
	if err := t.server.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(t.ended)
		_ = t.server.Wait() // its output is more informative
	}()
	if err := t.start(ctx, o); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// start runs the program once the server answers.
func (t *Terminal) start(ctx context.Context, o Options) error {
	if err := t.until(ctx, func() (bool, error) {
		_, err := os.Stat(t.socket())
		return err == nil, nil
	}); err != nil {
		return err
	}
	for _, args := range [][]string{
		slices.Concat([]string{"new-session", "-d", "-x", strconv.Itoa(o.Width), "-y", strconv.Itoa(o.Height), "env"}, o.Env, o.Args),
		// Show only the program, at the requested size.
		{"set-option", "-g", "status", "off"},
		{"set-option", "-g", "window-size", "manual"},
		{"set-option", "-g", "escape-time", "0"},
	} {
		if _, err := t.tmux(ctx, args...); err != nil {
			return err
		}
	}
	return t.Resize(ctx, o.Width, o.Height)
}

func (t *Terminal) socket() string { return filepath.Join(t.dir, "tmux") }

// Close ends the program and the terminal.
func (t *Terminal) Close() error {
	_ = t.server.Process.Kill() // it may have ended with its program
	<-t.ended
	return os.RemoveAll(t.dir)
}

func (t *Terminal) tmux(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "tmux", append([]string{"-u", "-S", t.socket()}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// Press types keys by their tmux names, such as Enter, or single characters.
func (t *Terminal) Press(ctx context.Context, keys ...string) error {
	_, err := t.tmux(ctx, append([]string{"send-keys", "--"}, keys...)...)
	return err
}

// Type types text literally.
func (t *Terminal) Type(ctx context.Context, text string) error {
	_, err := t.tmux(ctx, "send-keys", "-l", "--", text)
	return err
}

// Resize changes the terminal's size.
func (t *Terminal) Resize(ctx context.Context, width, height int) error {
	_, err := t.tmux(ctx, "resize-window", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height))
	return err
}

// Text returns the visible text, with a line for each of the terminal's.
func (t *Terminal) Text(ctx context.Context) (string, error) {
	return t.tmux(ctx, "capture-pane", "-p")
}

// Styled returns the visible text with the sequences for colours and weights that [SVG] parses.
func (t *Terminal) Styled(ctx context.Context) (string, error) {
	return t.tmux(ctx, "capture-pane", "-p", "-e")
}

// State returns one of the terminal's tmux variables, such as alternate_on.
func (t *Terminal) State(ctx context.Context, name string) (string, error) {
	out, err := t.tmux(ctx, "display-message", "-p", "#{"+name+"}")
	return strings.TrimSpace(out), err
}

// Copy appends everything that the program writes from now on to a file.
func (t *Terminal) Copy(ctx context.Context, file string) error {
	_, err := t.tmux(ctx, "pipe-pane", "-o", "cat >>'"+file+"'")
	return err
}

// Await waits until ok accepts the visible text, or ctx ends. The error then contains the last
// text.
func (t *Terminal) Await(ctx context.Context, ok func(text string) bool) error {
	var last string
	err := t.until(ctx, func() (done bool, err error) {
		text, err := t.Text(ctx)
		if err == nil {
			last = text
		}
		return ok(text), err
	})
	if err != nil {
		return fmt.Errorf("%w; the screen was:\n%s", err, last)
	}
	return nil
}

// until polls look until it returns done.
func (t *Terminal) until(ctx context.Context, look func() (done bool, err error)) error {
	const often = 10 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-t.ended:
			return fmt.Errorf("the terminal ended: %s", t.said.String())
		}
	}
}
