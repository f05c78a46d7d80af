package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/postern-dev/postern/control/admin"
)

const (
	// Greeting is the line that `postern admin-stdio` writes once it has connected to the admin
	// socket. The number is the protocol version.
	Greeting = "postern admin-stdio 1\n"
	// program is its path in the image.
	program = "/postern"
	// Subcommand is the command that is run in the pod.
	Subcommand = "admin-stdio"
	// greetingTimeout limits the start of the program in the pod, which takes a few tenths of a
	// second unless the node is overloaded.
	greetingTimeout = 30 * time.Second
	// maxComplaint limits how much of the program's standard error is kept, in bytes.
	maxComplaint = 4 << 10
)

// session is one exec: the connection to the gateway's admin socket.
type session struct {
	net.Conn // our end of a pipe; the exec has the other
	gateway  *Gateway
	target   Target
	cancel   context.CancelFunc
	done     chan struct{}
	stderr   head

	err error // of the exec; valid once done is closed
}

// Dial connects to the active gateway's admin socket. Its errors wrap admin.ErrNoGateway.
func (g *Gateway) Dial(ctx context.Context) (net.Conn, error) {
	target, err := g.Find(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := g.executor(target)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", admin.ErrNoGateway, err)
	}
	ours, theirs := net.Pipe()
	background, cancel := context.WithCancel(quiet(context.WithoutCancel(ctx)))
	s := &session{Conn: ours, gateway: g, target: target, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = stream.StreamWithContext(background, remotecommand.StreamOptions{Stdin: theirs, Stdout: theirs, Stderr: &s.stderr})
		_ = theirs.Close()
	}()
	if !g.hold(s) {
		_ = s.Close()
		return nil, net.ErrClosed
	}
	if err := s.greeted(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// executor runs the program over WebSocket, or over SPDY if WebSocket is not supported.
func (g *Gateway) executor(t Target) (remotecommand.Executor, error) {
	u := g.client.Get().Namespace(t.Namespace).Resource("pods").Name(t.Pod).SubResource("exec").
		Param("container", t.Container).Param("command", program).Param("command", Subcommand).
		Param("stdin", "true").Param("stdout", "true").Param("stderr", "true").URL()
	first, err := remotecommand.NewWebSocketExecutor(g.config, "GET", u.String())
	if err != nil {
		return nil, err
	}
	second, err := remotecommand.NewSPDYExecutor(g.config, "POST", u)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// greeted waits until the program has reached the gateway. It reads byte by byte, since what
// follows belongs to the connection.
func (s *session) greeted(ctx context.Context) error {
	limit := s.gateway.limit(greetingTimeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })()
	var line [len(Greeting)]byte
	for i := range line {
		if _, err := io.ReadFull(s.Conn, line[i:i+1]); err != nil {
			return s.silent(ctx, limit, err)
		}
		if line[i] != Greeting[i] {
			return fmt.Errorf("%w: pod %s runs another version of postern, or something else: it began with %q (upgrade the older one)",
				admin.ErrNoGateway, s.target.Pod, line[:i+1])
		}
	}
	return nil
}

// silent says why there was no greeting.
func (s *session) silent(ctx context.Context, limit time.Duration, err error) error {
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %s %s in pod %s said nothing within %s (see that kubectl exec works in that pod)",
			admin.ErrNoGateway, program, Subcommand, s.target.Pod, limit)
	}
	<-s.done
	if s.err == nil {
		return fmt.Errorf("%w: %s %s in pod %s ended at once: %w", admin.ErrNoGateway, program, Subcommand, s.target.Pod, err)
	}
	return s.failed()
}

// failed says why the exec ended.
func (s *session) failed() error {
	if exit, ok := errors.AsType[exec.CodeExitError](s.err); ok {
		complaint := strings.TrimPrefix(s.stderr.String(), "postern: ")
		if complaint == "" {
			complaint = fmt.Sprintf("%s %s ended with exit code %d", program, Subcommand, exit.Code)
		}
		return fmt.Errorf("%w: in pod %s: %s", admin.ErrNoGateway, s.target.Pod, complaint)
	}
	err := s.err
	if upgrade, ok := errors.AsType[*httpstream.UpgradeFailureError](err); ok {
		err = upgrade.Cause
	}
	switch {
	case apierrors.IsForbidden(err), strings.Contains(err.Error(), "is forbidden: "):
		return s.gateway.forbidden(err)
	case strings.Contains(err.Error(), "no such file or directory"), strings.Contains(err.Error(), "executable file not found"):
		return fmt.Errorf("%w: pod %s has no %s (is it of postern's image?): %w", admin.ErrNoGateway, s.target.Pod, program, oneLine(err))
	}
	return fmt.Errorf("%w: run %s in pod %s: %w", admin.ErrNoGateway, Subcommand, s.target.Pod, oneLine(err))
}

func (g *Gateway) forbidden(err error) error {
	return fmt.Errorf("%w: this user may not run a program in a pod of namespace %q: %w (it takes create of pods/exec there: kubectl create role postern-admin -n %s --verb=get,list,create --resource=pods,pods/exec)",
		admin.ErrNoGateway, g.namespace, oneLine(err), g.namespace)
}

// Read reads data from the gateway. If the exec was cut off, the error says why.
func (s *session) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if errors.Is(err, io.EOF) && n == 0 {
		<-s.done
		if s.err != nil {
			return 0, fmt.Errorf("the connection through pod %s ended: %w", s.target.Pod, s.err)
		}
	}
	return n, err
}

// Close ends the exec, and with it the program in the pod, and waits for it.
func (s *session) Close() error {
	err := s.Conn.Close()
	s.cancel()
	<-s.done
	s.gateway.forget(s)
	return err
}

// head stores the beginning of what is written to it. It is safe for concurrent use.
type head struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer, and never fails.
func (t *head) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b[:min(len(b), maxComplaint-t.buf.Len())])
	return len(b), nil
}

// String returns what was written, as one line.
func (t *head) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(t.buf.String()), " ")
}

// quiet keeps client-go from writing to standard error, where a screen may be.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
