package wan

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"time"
)

// Traffic is what a forwarder has done. Forward is from the end that spoke first.
type Traffic struct {
	Forward  Counters `json:"forward"`
	Backward Counters `json:"backward"`
	// Missed are datagrams that the forwarder's socket had no room for, because it was not
	// on a processor for too long: losses that nobody asked for.
	Missed uint64 `json:"missed"`
	// Late are the deliveries that were more than a millisecond late, each of a few
	// packets, and Latest is the greatest lateness.
	Late   uint64        `json:"late"`
	Latest time.Duration `json:"latestNanoseconds"`
	// CPU is the forwarder's processor time.
	CPU time.Duration `json:"cpuNanoseconds"`
}

// ready is the first line of a forwarder's output; its [Traffic] is the second.
type ready struct {
	Address netip.AddrPort `json:"address"`
}

// Serve forwards over the path that text, a [Path] as JSON, describes, until reading from
// until ends. It writes a line of JSON with its address to out when it is ready, and one
// with its [Traffic] at the end. It is what a program does that [Start] starts.
func Serve(ctx context.Context, text string, until io.Reader, out io.Writer) error {
	var p Path
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("wan: path %q: %w", text, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // Ends with the process: a read of standard input cannot be interrupted.
		defer cancel()
		_, _ = io.Copy(io.Discard, until)
	}()
	lines := json.NewEncoder(out)
	t, err := forward(ctx, p, func(at netip.AddrPort) error { return lines.Encode(ready{at}) })
	if err != nil {
		return err
	}
	return lines.Encode(t)
}

// Forwarder is a process that forwards.
type Forwarder struct {
	// At is its address, for both ends.
	At netip.AddrPort

	stop   func() error // Closes its standard input.
	kill   context.CancelFunc
	output *bufio.Reader
	errors *strings.Builder
	wait   func() error
}

// stopTimeout bounds how long a forwarder takes to end when it is told to.
const stopTimeout = 20 * time.Second

// Start starts a forwarder: argv with the path as one more argument, whose program calls
// [Serve]. It ends with ctx, with this process, or by Stop.
func Start(ctx context.Context, argv []string, p Path) (*Forwarder, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("wan: encode path: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], string(text))...)
	f := &Forwarder{kill: cancel, wait: cmd.Wait, errors: new(strings.Builder)}
	cmd.Stderr = f.errors
	in, err := cmd.StdinPipe()
	if err == nil {
		f.stop = in.Close
		var out io.Reader
		if out, err = cmd.StdoutPipe(); err == nil {
			f.output = bufio.NewReader(out)
			err = cmd.Start()
		}
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("wan: start forwarder: %w", err)
	}
	var r ready
	if err := f.line(&r); err != nil {
		f.kill()
		return nil, fmt.Errorf("wan: start forwarder: %w", f.ended(err))
	}
	f.At = r.Address
	return f, nil
}

// line reads one line of the forwarder's output.
func (f *Forwarder) line(v any) error {
	text, err := f.output.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// ended waits for the process and adds to err what there is to say.
func (f *Forwarder) ended(err error) error {
	err = errors.Join(err, f.wait())
	if text := strings.TrimSpace(f.errors.String()); text != "" && err != nil {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// Stop ends the forwarder and returns what it has done.
func (f *Forwarder) Stop() (Traffic, error) {
	defer f.kill()
	defer time.AfterFunc(stopTimeout, f.kill).Stop()
	var t Traffic
	err := errors.Join(f.stop(), f.line(&t))
	if err = f.ended(err); err != nil {
		return t, fmt.Errorf("wan: forwarder: %w", err)
	}
	return t, nil
}
