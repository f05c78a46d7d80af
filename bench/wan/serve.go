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

// Traffic is what a forwarder has done.
type Traffic struct {
	// Tunnels are those that share the path, in the order of their addresses.
	Tunnels []TunnelTraffic `json:"tunnels"`
	// Missed are datagrams that the forwarder's sockets had no room for, because it was not
	// on a processor for too long: losses that nobody asked for.
	Missed uint64 `json:"missed"`
	// Late are the deliveries that were more than a millisecond late, each of a few
	// packets, and Latest is the greatest lateness.
	Late   uint64        `json:"late"`
	Latest time.Duration `json:"latestNanoseconds"`
	// CPU is the forwarder's processor time.
	CPU time.Duration `json:"cpuNanoseconds"`
}

// TunnelTraffic is one tunnel's. Forward is from the end that sends: see fullSize.
type TunnelTraffic struct {
	Forward  Counters `json:"forward"`
	Backward Counters `json:"backward"`
}

// sum is that of all tunnels, both ways.
func (t Traffic) sum() (all Counters) {
	for _, one := range t.Tunnels {
		all = all.plus(one.Forward).plus(one.Backward)
	}
	return all
}

// plan is what a forwarder is to do: the path, and how many tunnels share it.
type plan struct {
	Path
	Tunnels int `json:"tunnels"`
}

// ready is the first line of a forwarder's output. After it come lines with its [Traffic].
type ready struct {
	Addresses []netip.AddrPort `json:"addresses"` // By tunnel.
}

// Serve forwards over the path that text, a plan as JSON, describes, until reading from
// until ends. It writes a line of JSON with its addresses to out when it is ready, one with
// its [Traffic] so far for every line that it reads, and one at the end. It is what a
// program does that [Start] starts.
func Serve(ctx context.Context, text string, until io.Reader, out io.Writer) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("wan: path %q: %w", text, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := make(chan struct{})
	go func() { // Ends with the process: a read of standard input cannot be interrupted.
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
	// At are its addresses, by tunnel, each for both ends.
	At []netip.AddrPort

	input  io.WriteCloser
	kill   context.CancelFunc
	output *bufio.Reader
	errors *strings.Builder
	wait   func() error
}

// stopTimeout bounds how long a forwarder takes to end when it is told to.
const stopTimeout = 20 * time.Second

// Start starts a forwarder for tunnels that share a path: argv with that as one more
// argument, whose program calls [Serve]. It ends with ctx, with this process, or by Stop.
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

// ended waits for the process and adds to err what there is to say.
func (f *Forwarder) ended(err error) error {
	err = errors.Join(err, f.wait())
	if text := strings.TrimSpace(f.errors.String()); text != "" && err != nil {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// Traffic asks for what the forwarder has done so far.
func (f *Forwarder) Traffic() (Traffic, error) {
	var t Traffic
	_, err := io.WriteString(f.input, "\n")
	if err = errors.Join(err, f.line(&t)); err != nil {
		return t, fmt.Errorf("wan: ask the forwarder: %w", err)
	}
	return t, nil
}

// Stop ends the forwarder and returns what it has done.
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
