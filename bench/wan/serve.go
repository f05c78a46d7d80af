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

// Traffic is what a forwarder has forwarded.
type Traffic struct {
	// Tunnels share the path. They are in the order of their addresses.
	Tunnels []TunnelTraffic `json:"tunnels"`
	// Missed is the number of datagrams that the forwarder's sockets dropped, because it was not
	// scheduled in time: unwanted losses.
	Missed uint64 `json:"missed"`
	// Late is the number of deliveries, of a few packets each, that were more than a millisecond
	// late. Latest is the maximum lateness.
	Late   uint64        `json:"late"`
	Latest time.Duration `json:"latestNanoseconds"`
	// CPU is the forwarder's processor time.
	CPU time.Duration `json:"cpuNanoseconds"`
}

// TunnelTraffic is the traffic of one tunnel. Forward is from the end that sends: see fullSize.
type TunnelTraffic struct {
	Forward  Counters `json:"forward"`
	Backward Counters `json:"backward"`
}

// sum returns the sum over all tunnels and both directions.
func (t Traffic) sum() (all Counters) {
	for _, one := range t.Tunnels {
		all = all.plus(one.Forward).plus(one.Backward)
	}
	return all
}

// plan configures a forwarder: the path, and the number of tunnels that share it.
type plan struct {
	Path
	Tunnels int `json:"tunnels"`
}

// ready is the first line of a forwarder's output. Lines with its [Traffic] follow.
type ready struct {
	Addresses []netip.AddrPort `json:"addresses"` // by tunnel
}

// Serve forwards over the path that text, a plan as JSON, describes, until reading from until
// ends. When ready it writes a line of JSON with its addresses to out. For each line that it
// reads it writes one with its [Traffic] so far, and another at the end. The program that [Start]
// starts calls it.
func Serve(ctx context.Context, text string, until io.Reader, out io.Writer) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("wan: path %q: %w", text, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := make(chan struct{})
	go func() { // ends with the process: a read of standard input cannot be interrupted
		defer cancel()
		for lines := bufio.NewScanner(until); lines.Scan(); {
			select {
			case asked <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
	return forward(ctx, p, asked, json.NewEncoder(out))
}

// Forwarder is a process that forwards.
type Forwarder struct {
	// At are its addresses, by tunnel. Both ends use the same one.
	At []netip.AddrPort

	input  io.WriteCloser
	kill   context.CancelFunc
	output *bufio.Reader
	errors *strings.Builder
	wait   func() error
}

// stopTimeout bounds how long a forwarder takes to end when requested.
const stopTimeout = 20 * time.Second

// Start starts a forwarder for tunnels that share a path. argv is a program that calls [Serve];
// the plan is appended as last argument. The forwarder ends with ctx, with this process, or by
// Stop.
func Start(ctx context.Context, argv []string, p Path, tunnels int) (*Forwarder, error) {
	text, err := json.Marshal(plan{p, tunnels})
	if err != nil {
		return nil, fmt.Errorf("wan: encode path: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], string(text))...)
	f := &Forwarder{kill: cancel, wait: cmd.Wait, errors: new(strings.Builder)}
	cmd.Stderr = f.errors
	f.input, err = cmd.StdinPipe()
	if err == nil {
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
	f.At = r.Addresses
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

// ended waits for the process, and adds its error output to err.
func (f *Forwarder) ended(err error) error {
	err = errors.Join(err, f.wait())
	if text := strings.TrimSpace(f.errors.String()); text != "" && err != nil {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// Traffic asks for the traffic so far.
func (f *Forwarder) Traffic() (Traffic, error) {
	var t Traffic
	_, err := io.WriteString(f.input, "\n")
	if err = errors.Join(err, f.line(&t)); err != nil {
		return t, fmt.Errorf("wan: ask the forwarder: %w", err)
	}
	return t, nil
}

// Stop ends the forwarder and returns its traffic.
func (f *Forwarder) Stop() (Traffic, error) {
	defer f.kill()
	defer time.AfterFunc(stopTimeout, f.kill).Stop()
	var t Traffic
	err := errors.Join(f.input.Close(), f.line(&t))
	if err = f.ended(err); err != nil {
		return t, fmt.Errorf("wan: forwarder: %w", err)
	}
	return t, nil
}
