package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/bench/load"
)

// Names of the subjects.
const (
	Postern        = "postern"
	PosternBefore  = "postern-before"
	PosternPaths   = "postern-paths"
	Unprivileged   = "postern-unprivileged"
	PionUDP        = "pion-udp"
	PionTCP        = "pion-tcp"
	CoturnUDP      = "coturn-udp"
	CoturnTCP      = "coturn-tcp"
	Tsnet          = "tsnet"
	WireGuardTUN   = "wireguard-tun"
	WireGuardBBR   = "wireguard-tun-bbr"
	WireGuardCUBIC = "wireguard-tun-cubic"
	WireGuardGo    = "wireguard-go"
	Stock          = "stock"
	TsnetProxy     = "tsnet-proxy"
	RemoteDialer   = "remotedialer"
	Loopback       = "loopback"
	Cipher         = "chacha20poly1305"
)

// Subject carries scenarios, each run in a new process.
type Subject struct {
	Name string
	// About describes it in a line.
	About string
	// Limits are part of what the subject is. Those of [Options] do not replace them.
	Limits limits.Limits
	// Prepare builds what Run needs; nil means nothing. It is called once.
	Prepare func(context.Context) error
	// Run makes one run.
	Run runFunc
}

// runFunc makes a run.
type runFunc = func(context.Context, load.Spec) (load.Result, error)

// runGrace is the time that a run may take besides warm-up and window: to connect, close and
// write profiles on a busy machine. After that it counts as hung.
const runGrace = 2 * time.Minute

// Programs are the programs that subjects run in.
type Programs struct {
	// Self is the command line of the program that makes runs of the subjects of postern's own
	// module (see [Own]). The spec is appended as last argument.
	Self []string
	// Before is a program like Self, built from another commit; empty means none.
	Before []string
	// Postern is the file of the postern program; empty means none.
	Postern string
	// Relay is the command line of the program that runs [ServeRelay] at the address in its last
	// argument.
	Relay []string
	// Peers is the folder of the peers' modules; empty means none.
	Peers string
	// Dir is for files: the peers' programs, each built when its first subject is prepared, and
	// coturn's files.
	Dir string
}

// Subjects returns all subjects.
func Subjects(p Programs) []Subject {
	own := process(p.Self)
	return slices.Concat(relayedSubjects(p), binarySubjects(p), peerSubjects(p), gatewaySubjects(p), []Subject{
		before(p.Before),
		{
			Name:  Postern,
			About: "two gateways' engines, stacks and underlay sockets over UDP on the loopback interface",
			Run:   own,
		},
		{
			Name:  PosternPaths,
			About: "the same over a path that path finders find, select and keep alive by probes",
			Run:   own,
		},
		{
			Name:  Unprivileged,
			About: "postern with the socket buffers that Linux grants by default without NET_ADMIN",
			Run:   own,
		},
		{
			Name:  Loopback,
			About: "the kernel's TCP over the loopback interface, nothing encrypted",
			Run:   own,
		},
		{
			Name:  Cipher,
			About: "the cipher and nothing else: no tunnel on this machine can pass it",
			Run:   own,
		},
	})
}

// before is postern built from another commit.
func before(argv []string) Subject {
	return Subject{
		Name:  PosternBefore,
		About: "postern as it was, by the program that -before names",
		Prepare: func(context.Context) error {
			if len(argv) == 0 {
				return errors.New("which program? There was no -before")
			}
			return nil
		},
		Run: func(ctx context.Context, spec load.Spec) (load.Result, error) {
			spec.Subject = Postern
			return process(argv)(ctx, spec)
		},
	}
}

// relayedSubjects are postern through TURN servers, each in a separate process.
func relayedSubjects(p Programs) []Subject {
	own := process(p.Self)
	pion := func(at netip.AddrPort) []string {
		return append(p.Relay[:len(p.Relay):len(p.Relay)], at.String())
	}
	return []Subject{
		{
			Name:  PionUDP,
			About: "postern with an allocation at pion/turn's server, over UDP, in a process of its own that is not counted",
			Run:   through(pion, own),
		},
		{
			Name:  PionTCP,
			About: "the same with TCP to the server",
			Run:   through(pion, own),
		},
		{
			Name:    CoturnUDP,
			About:   "the same with coturn, over UDP",
			Prepare: findCoturn,
			Run:     through(coturn(p.Dir), own),
		},
		{
			Name:    CoturnTCP,
			About:   "the same with coturn, over TCP",
			Prepare: findCoturn,
			Run:     through(coturn(p.Dir), own),
		},
	}
}

// process runs argv with the spec as additional argument and reads the result.
func process(argv []string) runFunc {
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
		if err := runWithin(cmd, spec); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return load.Result{}, fmt.Errorf("%w%s", err, quoted(stderr.Bytes()))
		}
		return parseResult(stdout.Bytes())
	}
}

// memoryShare is the share of a memory limit that the Go runtime of a limited run may use, as in
// gateways.
const memoryShare = 0.9

// runWithin runs cmd within the spec's limits. If the run starts processes of a program, the
// limits apply to these and not to the run.
func runWithin(cmd *exec.Cmd, spec load.Spec) (err error) {
	l := limits.Limits{CPUs: spec.CPUs, Memory: spec.Memory}
	if !l.Any() || spec.Program != "" {
		return cmd.Run()
	}
	g, err := limits.New(l)
	if err != nil {
		return err
	}
	defer func() {
		if n := g.Events().Kills; n > 0 {
			err = errors.Join(fmt.Errorf("the kernel killed %d of its processes for want of memory", n), err)
		}
		err = errors.Join(err, g.Close())
	}()
	if l.Memory > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", int64(float64(l.Memory)*memoryShare)))
	}
	if err := g.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// parseResult parses the single line that a run prints.
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

// quoted returns the end of a program's output as a suffix for an error.
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
