package binary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/bench/child"
	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
)

// Counters of a run, by unit in benchstat's format.
const (
	// UnitWire is the bytes of WireGuard messages that both gateways sent.
	UnitWire = "wire-bytes"
	// UnitThrottled is the number of scheduler periods in which a limited gateway was throttled.
	UnitThrottled = "throttled-periods"
	// UnitPeriods is the number of periods in which one ran.
	UnitPeriods = "periods"
	// UnitReclaims is how often the kernel had to reclaim memory of a limited gateway.
	UnitReclaims = "memory-reclaims"
)

const (
	// defaultMTU is the default of WireGuard interfaces, which the subjects that this one is
	// compared with use. The gateway's own default follows the machine's interfaces.
	defaultMTU = 1420
	// endTimeout bounds how long a gateway takes to end after SIGTERM: it waits 10 s for open
	// connections.
	endTimeout = 30 * time.Second
	// upPoll is the pause between two status requests.
	upPoll = 10 * time.Millisecond
)

// configuration holds what differs between the two gateways.
type configuration struct {
	name string
	// port is the UDP port, announced on loopback; 0 means any free port, unannounced.
	port int
	mtu  int
	// service is the named service's upstream; empty means none.
	service string
}

// write writes the gateway's configuration file as JSON, which is valid YAML.
func (c configuration) write(dir string) (file, socket string, err error) {
	socket = filepath.Join(dir, c.name+".sock")
	spec := map[string]any{
		"stateDir": filepath.Join(dir, c.name),
		"listen":   map[string]any{"port": c.port},
		"mtu":      c.mtu,
		"admin":    map[string]any{"socket": socket},
		"limits":   map[string]any{"connectionsPerSecond": 100_000}, // so that loads of connections are not limited
	}
	if c.mtu == 0 {
		spec["mtu"] = defaultMTU
	}
	if c.port != 0 {
		spec["discovery"] = map[string]any{"advertise": []string{fmt.Sprintf("127.0.0.1:%d", c.port)}}
	}
	if c.service != "" {
		spec["services"] = map[string]any{"named": []any{map[string]any{"name": service, "port": 5201, "address": c.service}}}
	}
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": "postern.dev/v1alpha1", "kind": "Gateway",
		"metadata": map[string]any{"name": c.name}, "spec": spec,
	}, "", "  ")
	if err != nil {
		return "", "", fmt.Errorf("write configuration: %w", err)
	}
	file = filepath.Join(dir, c.name+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", "", fmt.Errorf("write configuration: %w", err)
	}
	return file, socket, nil
}

// gateway is one process.
type gateway struct {
	name, program, socket string
	cmd                   *exec.Cmd
	log                   *os.File
	group                 *limits.Group // nil without limits
	ended                 chan struct{} // closed when the process has ended
	err                   error         // why, once it has
}

// start starts a gateway, without waiting until it answers.
func start(dir, program string, l limits.Limits, c configuration) (*gateway, error) {
	file, socket, err := c.write(dir)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, c.name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start gateway %s: %w", c.name, err)
	}
	g := &gateway{name: c.name, program: program, socket: socket, log: log, ended: make(chan struct{})}
	g.cmd = exec.Command(program, "gateway", "--config", file) //nolint:noctx // close ends it, with time to drain
	g.cmd.Env, g.cmd.Stderr = environment(os.Environ()), log
	child.EndWithParent(g.cmd)
	launch := g.cmd.Start
	if l.Any() {
		if g.group, err = limits.New(l); err != nil {
			return nil, errors.Join(err, log.Close())
		}
		launch = func() error { return g.group.Start(g.cmd) }
	}
	if err := launch(); err != nil {
		err = fmt.Errorf("start gateway %s: %w", c.name, err)
		if g.group != nil {
			err = errors.Join(err, g.group.Close())
		}
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		defer close(g.ended)
		g.err = g.cmd.Wait()
	}()
	return g, nil
}

// environment returns ours without the variables that configure the gateway or the Go runtime.
func environment(ours []string) []string {
	return slices.DeleteFunc(slices.Clone(ours), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "POSTERN_") || slices.Contains([]string{"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG"}, name)
	})
}

func (g *gateway) pid() int { return g.cmd.Process.Pid }

// up waits until the gateway answers.
func (g *gateway) up(ctx context.Context) error {
	return g.until(ctx, "does not answer", func(api.Status) bool { return true })
}

// carries waits until the gateway knows that its path carries packets of the overlay's MTU.
// Connections opened before that use smaller ones.
func (g *gateway) carries(ctx context.Context, mtu int) error {
	return g.until(ctx, fmt.Sprintf("has no path for packets of %d bytes", mtu), func(s api.Status) bool {
		return slices.ContainsFunc(s.Peers, func(p api.PeerStatus) bool { return p.Path.MTU >= mtu })
	})
}

// until waits until wanted is true of the gateway's status. Its error uses unlike to say what was
// wrong.
func (g *gateway) until(ctx context.Context, unlike string, wanted func(api.Status) bool) error {
	tick := time.NewTicker(upPoll)
	defer tick.Stop()
	for {
		if s, err := admin.NewClient(g.socket).Status(ctx); err == nil && wanted(s) {
			return nil
		}
		select {
		case <-tick.C:
		case <-g.ended:
			return fmt.Errorf("gateway %s ended: %w%s", g.name, g.err, g.said())
		case <-ctx.Done():
			return fmt.Errorf("gateway %s %s: %w%s", g.name, unlike, ctx.Err(), g.said())
		}
	}
}

// command runs one of the program's commands against this gateway and returns its output.
func (g *gateway) command(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, g.program, append([]string{"--socket", g.socket}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environment(os.Environ()), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("postern %s: %w: %s", args[0], err, lastLine(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// local returns the address of the local listener for a service of the other gateway.
func (g *gateway) local(ctx context.Context, service string) (string, error) {
	s, err := admin.NewClient(g.socket).Status(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range s.Peers {
		for _, l := range p.Local {
			if l.Service == service {
				return l.Address, nil
			}
		}
	}
	return "", fmt.Errorf("gateway %s has no local listener for %s%s", g.name, service, g.said())
}

// count adds this gateway's counters to into.
func (g *gateway) count(ctx context.Context, into map[string]float64) error {
	s, err := admin.NewClient(g.socket).Status(ctx)
	if err != nil {
		return err
	}
	for _, p := range s.Peers {
		into[UnitWire] += float64(p.TxBytes)
	}
	if g.group != nil {
		e := g.group.Events()
		into[UnitThrottled] += float64(e.Throttled)
		into[UnitPeriods] += float64(e.Periods)
		into[UnitReclaims] += float64(e.Reclaims)
	}
	return nil
}

// terminate sends SIGTERM.
func (g *gateway) terminate() {
	_ = g.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
}

// close waits for the process to end, kills it after a timeout, and returns an error if it did
// not exit cleanly.
func (g *gateway) close() error {
	limit := time.NewTimer(endTimeout)
	defer limit.Stop()
	var err error
	select {
	case <-g.ended:
		err = g.err
	case <-limit.C:
		_ = g.cmd.Process.Kill()
		<-g.ended
		err = fmt.Errorf("still running %s after SIGTERM", endTimeout)
	}
	if err != nil {
		err = fmt.Errorf("gateway %s: %w%s", g.name, err, g.said())
	}
	if g.group != nil {
		if n := g.group.Events().Kills; n > 0 {
			err = errors.Join(fmt.Errorf("the kernel killed gateway %s for want of memory", g.name), err)
		}
		err = errors.Join(err, g.group.Close())
	}
	return errors.Join(err, g.log.Close())
}

// said returns the last line of the gateway's log as a suffix for an error.
func (g *gateway) said() string {
	text, err := os.ReadFile(g.log.Name())
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return ""
	}
	return ": " + lastLine(string(text))
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
