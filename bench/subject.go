package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-dev/postern/bench/load"
)

// The subjects' names.
const (
	Postern  = "postern"
	Stock    = "stock"
	Loopback = "loopback"
	Cipher   = "chacha20poly1305"
)

// Subject bears scenarios, in a process per run.
type Subject struct {
	Name string
	// About says in a line what it is.
	About string
	// Prepare builds what Run needs; nil for nothing. It is called once.
	Prepare func(context.Context) error
	// Run makes one run.
	Run func(context.Context, load.Spec) (load.Result, error)
}

// runGrace is what a run may take beyond its warm-up and its window, before it counts
// as hung: connecting, closing, writing profiles, on a machine that is busy.
const runGrace = 60 * time.Second

// Subjects returns every subject. Self is the program that answers to a spec as its
// last argument for the subjects of postern's own module (see [Own]), with the
// arguments that make it do so. The peers' program is built from source, the module in
// the folder peers, into the folder dir, when the first of them is prepared.
func Subjects(self []string, peers, dir string) []Subject {
	program := filepath.Join(dir, "peers")
	return []Subject{
		{
			Name:  Postern,
			About: "two gateways' engines, stacks and underlay sockets over UDP on the loopback interface",
			Run:   process(self),
		},
		{
			Name:    Stock,
			About:   "wireguard-go with its tun/netstack and its own bind, as wireproxy embeds it",
			Prepare: func(ctx context.Context) error { return build(ctx, peers, program) },
			Run:     process([]string{program}),
		},
		{
			Name:  Loopback,
			About: "the kernel's TCP over the loopback interface, nothing encrypted",
			Run:   process(self),
		},
		{
			Name:  Cipher,
			About: "the cipher and nothing else: no tunnel on this machine can pass it",
			Run:   process(self),
		},
	}
}

// build compiles a module's program.
func build(ctx context.Context, source, program string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return fmt.Errorf("build %s: %w", source, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w%s", source, err, quoted(out))
	}
	return nil
}

// process runs argv with the spec as one more argument and reads the result.
func process(argv []string) func(context.Context, load.Spec) (load.Result, error) {
	return func(ctx context.Context, spec load.Spec) (load.Result, error) {
		text, err := json.Marshal(spec)
		if err != nil {
			return load.Result{}, fmt.Errorf("encode spec: %w", err)
		}
		limit := spec.Warmup + spec.Duration + runGrace
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no result after %s", limit))
		defer cancel()
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], string(text))...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return load.Result{}, fmt.Errorf("%w%s", err, quoted(stderr.Bytes()))
		}
		return parseResult(stdout.Bytes())
	}
}

// parseResult reads the one line that a run prints.
func parseResult(out []byte) (load.Result, error) {
	var r load.Result
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return load.Result{}, fmt.Errorf("read result: %w%s", err, quoted(out))
	}
	if d.More() {
		return load.Result{}, fmt.Errorf("read result: more than one line%s", quoted(out))
	}
	if r.Bytes == 0 || r.Seconds <= 0 {
		return load.Result{}, errors.New("nothing arrived")
	}
	return r, nil
}

// quoted is the end of a program's output, as an addition to an error.
func quoted(out []byte) string {
	const most = 400
	text := strings.TrimSpace(string(out))
	if text == "" {
		return ""
	}
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return ": " + strings.ReplaceAll(text, "\n", "; ")
}
