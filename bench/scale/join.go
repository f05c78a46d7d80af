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

// Lines exchanged between a joiner and the measuring process, after the invitation.
const (
	lineReady     = "ready"     // by the joiner: prepared
	lineStart     = "start"     // to the joiner: start the gateway
	lineConnected = "connected" // by the joiner
)

// joinerTime bounds how long a joiner takes to end after its standard input is closed.
const joinerTime = 10 * time.Second

// invitation is the input of a joiner.
type invitation struct {
	Name string `json:"name"`
	// Dir is the joiner's private folder.
	Dir string `json:"dir"`
	// PrivateKey is in Base64: the JSON form of a key is redacted.
	PrivateKey string         `json:"privateKey"`
	Hub        peer.PublicKey `json:"hub"`
	At         netip.AddrPort `json:"at"`
}

// Join runs one new peer. It reads its invitation from in, writes to out when it is ready, starts
// when told to, and writes when it is connected. It ends when in ends, and fails if that is
// before the connection. The program named by Options.Joiner calls it.
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
	go func() { // ends with the process: a read of standard input cannot be interrupted
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	return i.join(ctx, m, out)
}

// join runs m as a peer until ctx ends, and writes to out when it is connected.
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

// warmUp starts a gateway without peers and ends it, so that the process's one-time
// initialisation is not measured.
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

// invited reads an invitation and returns the invited member.
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

// expect reads a line that must equal want.
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

// joiner is the process of one new peer. It is separate so that it does not share a garbage
// collector and scheduler with the others. It is for one goroutine.
type joiner struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	said  *strings.Builder // written to standard error
}

// startJoiner starts a program that calls Join for m, and waits until it is ready. When ctx ends,
// its input is closed, and later it is killed. dir must not be used by others.
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

// start starts the process with pipes for its input and output in j.
func (j *joiner) start() (err error) {
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	j.lines, j.cmd.Stderr = bufio.NewScanner(out), j.said
	j.cmd.Cancel, j.cmd.WaitDelay = j.in.Close, joinerTime // not killed at once, so that it can report how far it came
	return j.cmd.Start()
}

// connect tells the joiner to start its gateway, and waits until that is connected.
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

// await waits for a line from the process, which ends with ctx.
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

// end tells the process to close its gateway and end, kills it after a timeout, and returns an
// error if it failed.
func (j *joiner) end() error {
	_ = j.in.Close() // it is closed already if the context has ended
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

// join adds a peer to the running hub, lets it connect and removes it again. The process is ready
// before the time is taken.
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

// remove removes a peer from the running hub.
func (w *world) remove(ctx context.Context, name string) error {
	if err := w.hub.client.PeerRemove(ctx, name, true); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
