package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-dev/postern/bench/child"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

// What passes between a joiner and the process that measures, a line each, after the
// invitation.
const (
	lineReady     = "ready"     // by the joiner: all is done that may be before
	lineStart     = "start"     // to the joiner: it is to start its gateway
	lineConnected = "connected" // by the joiner
)

// joinerTime bounds the time that a joiner takes to end when its standard input has ended.
const joinerTime = 10 * time.Second

// invitation is what a joiner is told.
type invitation struct {
	Name string `json:"name"`
	// Dir is the joiner's own.
	Dir string `json:"dir"`
	// PrivateKey is in Base64: a key as JSON does not say what it is.
	PrivateKey string         `json:"privateKey"`
	Hub        peer.PublicKey `json:"hub"`
	At         netip.AddrPort `json:"at"`
}

// Join is one new peer: it reads its invitation from in, says on out that it is ready, starts
// when it is told to, and says when it is connected. It ends with in, and fails when that
// comes before the connection. It is what a program does that a measurement starts by
// Options.Joiner.
func Join(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	i, m, err := invited(lines)
	if err != nil {
		return fmt.Errorf("join a hub: %w", err)
	}
	if err := warmUp(ctx, i.Dir); err != nil {
		return fmt.Errorf("join a hub: %w", err)
	}
	if _, err := fmt.Fprintln(out, lineReady); err != nil {
		return fmt.Errorf("join a hub: %w", err)
	}
	if err := expect(lines, lineStart); err != nil {
		return fmt.Errorf("join a hub: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // Ends with the process: a read of standard input cannot be interrupted.
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	return i.join(ctx, m, out)
}

// join has m be a peer until ctx ends, and says on out when it is connected.
func (i invitation) join(ctx context.Context, m member, out io.Writer) error {
	p, err := startPeer(ctx, i.Dir, m, &Hub{public: i.Hub, at: i.At}, nil)
	if err != nil {
		return err
	}
	if err = p.connected(ctx); err == nil {
		_, err = fmt.Fprintln(out, lineConnected)
		<-ctx.Done()
	}
	f := Fleet{peers: []*Peer{p}}
	return errors.Join(err, f.close())
}

// warmUp starts a gateway without peers and ends it: what is loaded and made once in a
// process is no part of joining.
func warmUp(ctx context.Context, dir string) error {
	ms, err := newMembers(1)
	if err != nil {
		return err
	}
	p, err := start(ctx, newConfig(dir, ms[0]), ms[0])
	if err != nil {
		return err
	}
	f := Fleet{peers: []*Peer{p}}
	return f.close()
}

// invited reads an invitation, and for whom it is.
func invited(lines *bufio.Scanner) (i invitation, m member, err error) {
	text, err := next(lines)
	if err == nil {
		err = json.Unmarshal([]byte(text), &i)
	}
	m.name = i.Name
	if err == nil {
		m.key, err = peer.ParsePrivateKey(i.PrivateKey)
	}
	if err != nil {
		err = fmt.Errorf("read the invitation: %w", err)
	}
	return i, m, err
}

// next reads a line.
func next(lines *bufio.Scanner) (string, error) {
	if lines.Scan() {
		return lines.Text(), nil
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", io.ErrUnexpectedEOF
}

// expect reads a line that is to be want.
func expect(lines *bufio.Scanner, want string) error {
	got, err := next(lines)
	if err != nil {
		return fmt.Errorf("wait for %q: %w", want, err)
	}
	if got != want {
		return fmt.Errorf("wait for %q: got %q", want, got)
	}
	return nil
}

// joiner is a process that is one new peer, so that it does not share collections and
// a scheduler with the others. It is for one goroutine.
type joiner struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	said  *strings.Builder // on standard error
}

// startJoiner starts a program that calls Join, for m, and waits until it is ready. It is
// told to end when ctx ends, and killed when it does not. dir is to be its own.
func startJoiner(ctx context.Context, program []string, dir string, m member, hub *Hub) (*joiner, error) {
	text, err := json.Marshal(invitation{Name: m.name, Dir: dir, PrivateKey: m.key.Base64(), Hub: hub.public, At: hub.at})
	if err != nil {
		return nil, fmt.Errorf("invite %s: %w", m.name, err)
	}
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	child.EndWithParent(cmd)
	j := &joiner{name: m.name, cmd: cmd, said: new(strings.Builder)}
	if err := j.start(); err != nil {
		return nil, fmt.Errorf("start the process of %s: %w", m.name, err)
	}
	err = j.tell(string(text))
	if err == nil {
		err = j.await(ctx, lineReady)
	}
	if err != nil {
		return nil, errors.Join(err, j.end())
	}
	return j, nil
}

// start runs the process, and leaves both ends of what is said in j.
func (j *joiner) start() (err error) {
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	j.lines, j.cmd.Stderr = bufio.NewScanner(out), j.said
	j.cmd.Cancel, j.cmd.WaitDelay = j.in.Close, joinerTime // Killed at once it could not say how far it is.
	return j.cmd.Start()
}

// connect has the joiner start its gateway, and waits until that is connected.
func (j *joiner) connect(ctx context.Context) error {
	if err := j.tell(lineStart); err != nil {
		return err
	}
	return j.await(ctx, lineConnected)
}

// tell writes a line to the process.
func (j *joiner) tell(line string) error {
	if _, err := fmt.Fprintln(j.in, line); err != nil {
		return fmt.Errorf("tell the process of %s: %w", j.name, err)
	}
	return nil
}

// await waits for a line of the process, which ends with ctx.
func (j *joiner) await(ctx context.Context, line string) error {
	err := expect(j.lines, line)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("hear from the process of %s: %w", j.name, err)
}

// end has the process close its gateway and end, kills it when it takes too long, and says
// how it ended when that was no success.
func (j *joiner) end() error {
	_ = j.in.Close() // It is closed already when the context has ended.
	late := time.AfterFunc(joinerTime, func() { _ = j.cmd.Process.Kill() })
	defer late.Stop()
	err := j.cmd.Wait()
	if text := strings.TrimSpace(j.said.String()); text != "" && err != nil {
		err = fmt.Errorf("%w: %s", err, text)
	}
	if err != nil {
		return fmt.Errorf("end the process of %s: %w", j.name, err)
	}
	return nil
}

// join adds a peer to the running hub, by command, has it connect and removes it again. Its
// process is ready before the clock starts.
func (w *world) join(ctx context.Context, name string) (took time.Duration, err error) {
	ms, err := newMembers(1)
	if err != nil {
		return 0, err
	}
	m := ms[0]
	m.name = name
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	j, err := startJoiner(limited, w.Joiner, filepath.Join(w.dir, name), m, w.hub)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := w.hub.client.PeerAdd(limited, api.PeerAddRequest{Peer: api.Peer{Name: name, PublicKey: m.key.Public().String()}}); err != nil {
		return 0, errors.Join(fmt.Errorf("add %s: %w", name, err), j.end())
	}
	err = j.connect(limited)
	took = time.Since(begun)
	return took, errors.Join(err, j.end(), w.remove(ctx, name))
}

// remove takes a peer from the running hub.
func (w *world) remove(ctx context.Context, name string) error {
	if err := w.hub.client.PeerRemove(ctx, name, true); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
