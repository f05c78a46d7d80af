//go:build linux

package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Command is a program to start.
type Command struct {
	// Namespace is the network namespace to run in; "" means the test's own.
	Namespace string
	Args      []string
	// Env is added to the test's own environment.
	Env []string
	// Dir is the working directory; "" means the test's own.
	Dir   string
	Stdin string
	// Log, if set, receives a copy of both outputs.
	Log io.Writer
}

// Process is a running program. Its methods are safe for concurrent use.
type Process struct {
	args           []string
	cmd            *exec.Cmd
	stdout, stderr *output
	done           chan struct{} // closed when the program has ended
	err            error         // of Wait; valid once done is closed
}

// drainTimeout bounds the wait for output after a program ended while a child of its
// still holds the pipes. A busy machine may take seconds to read what is there.
const drainTimeout = time.Minute

// Start starts a program that dies at the latest with the test process. The caller must call
// [Process.Kill], or [Process.Wait] until the program ends.
func Start(c Command) (*Process, error) {
	args := enter(c.Namespace, c.Args)
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // its life is the Process's
	cmd.Env = append(environ(c.Namespace), c.Env...)
	cmd.Dir = c.Dir
	// Its own process group, so that Kill also reaches its children.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	p := &Process{args: c.Args, cmd: cmd, stdout: newOutput(c.Log), stderr: newOutput(c.Log), done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	cmd.WaitDelay = drainTimeout
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(c.Args, " "), err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// environ returns the test's environment. In a namespace it leaves out the variables that name a
// proxy, which cannot be reached there.
func environ(namespace string) []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return namespace != "" && strings.HasSuffix(strings.ToLower(name), "_proxy")
	})
}

// PID returns the program's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stdout returns the program's standard output so far.
func (p *Process) Stdout() string { return p.stdout.String() }

// Stderr returns the program's standard error so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the program, but not to its children.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s to %s: %w", s, p.args[0], err)
	}
	return nil
}

// Kill kills the program and its children, and waits until it has ended. It may be called more
// than once.
func (p *Process) Kill() {
	select {
	case <-p.done:
		return
	default:
	}
	// The group ID is the process ID. It only fails if the program has ended.
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	<-p.done
}

// Wait waits for the program to end and returns its exit code, or -1 if a signal ended it. It
// returns an error if ctx ends first or waiting fails.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for %s to end: %w%s", p.args[0], ctx.Err(), p.tail())
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		return 0, fmt.Errorf("wait for %s: %w", p.args[0], p.err)
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// WaitStdout waits until match accepts the standard output so far, and returns that output. It
// fails if the program ends first.
func (p *Process) WaitStdout(ctx context.Context, match func(string) bool) (string, error) {
	return p.waitOutput(ctx, p.stdout, match)
}

// WaitStderr is WaitStdout for standard error, to which gateways log.
func (p *Process) WaitStderr(ctx context.Context, match func(string) bool) (string, error) {
	return p.waitOutput(ctx, p.stderr, match)
}

func (p *Process) waitOutput(ctx context.Context, o *output, match func(string) bool) (string, error) {
	for {
		changed := o.changed()
		ended := false
		select {
		case <-p.done:
			ended = true // check once more: the last lines may have arrived since
		default:
		}
		if s := o.String(); match(s) {
			return s, nil
		}
		if ended {
			return "", fmt.Errorf("%s ended (%v) before it printed what was waited for%s", p.args[0], p.cmd.ProcessState, p.tail())
		}
		select {
		case <-changed:
		case <-p.done:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for output of %s: %w%s", p.args[0], ctx.Err(), p.tail())
		}
	}
}

// tail returns the end of both outputs, for errors.
func (p *Process) tail() string { return tail("stdout", p.Stdout()) + tail("stderr", p.Stderr()) }

// tailSize bounds each output in an error, in bytes: about forty lines.
const tailSize = 4 << 10

func tail(name, s string) string {
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return ""
	}
	if len(s) > tailSize {
		s = "…" + s[len(s)-tailSize:]
	}
	return "\n--- " + name + ":\n" + s
}

// Run runs a program in a namespace ("" means the test's own) with stdin as its input, and
// returns its output. Errors contain the command and both outputs.
func Run(ctx context.Context, namespace, stdin string, args ...string) (string, error) {
	p, err := Start(Command{Namespace: namespace, Args: args, Stdin: stdin})
	if err != nil {
		return "", err
	}
	defer p.Kill()
	code, err := p.Wait(ctx)
	if err != nil {
		return p.Stdout(), err
	}
	if code != 0 {
		return p.Stdout(), fmt.Errorf("%s: exit code %d%s", strings.Join(args, " "), code, p.tail())
	}
	return p.Stdout(), nil
}

// output stores a program's output and wakes waiters. One exec goroutine writes, anyone may read.
type output struct {
	copyTo io.Writer

	mu    sync.Mutex
	buf   bytes.Buffer
	grown chan struct{} // closed and replaced at every write
}

func newOutput(copyTo io.Writer) *output {
	return &output{copyTo: copyTo, grown: make(chan struct{})}
}

// Write never fails: a log error in the test must not stop the program.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(b)
	if o.copyTo != nil {
		_, _ = o.copyTo.Write(b)
	}
	close(o.grown)
	o.grown = make(chan struct{})
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.grown
}
