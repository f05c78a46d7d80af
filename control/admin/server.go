package admin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/klauspost/compress/gzhttp"

	"github.com/postern-dev/postern/control/connlimit"
)

const (
	// maxRequest bounds a request's body in bytes; a peer with a hundred listeners takes a tenth of
	// it.
	maxRequest = 64 << 10
	// readTimeout bounds the arrival of a request's header, and then of its body. It is not
	// http.Server's ReadTimeout, which includes the answer and would end a join that waits longer. A
	// process that gets no CPU for as long finds the time over, and loses the request although it is there.
	// Answers have no timeout: they end with the connection.
	readTimeout = time.Minute
	idleTimeout = 60 * time.Second
)

// ServerOptions configure a Server.
type ServerOptions struct {
	// Socket is the path to listen on.
	Socket  string
	Backend Backend
	Logger  *slog.Logger // nil discards
}

// Server serves a Backend on a Unix socket.
type Server struct {
	backend Backend
	log     *slog.Logger
	socket  string
	file    os.FileInfo // the socket's own, so that only it is removed
	http    *http.Server
	done    chan struct{}  // closed when the accepting goroutine has ended
	conns   sync.WaitGroup // one for every connection's goroutine
	cancel  context.CancelFunc
	once    sync.Once

	owner identity
}

// Listen creates the socket and serves it until Close or Shutdown. A socket left by a dead process
// is replaced; one in use is an ErrAlreadyRunning.
func Listen(o ServerOptions) (*Server, error) {
	return listen(o, peerCredentials)
}

func listen(o ServerOptions, credentials func(net.Conn) (identity, error)) (*Server, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l, info, err := listenSocket(o.Socket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		backend: o.Backend, log: o.Logger, socket: o.Socket, file: info,
		done: make(chan struct{}), cancel: cancel,
		owner: ownIdentity(),
	}
	s.http = &http.Server{
		Handler:           gzhttp.GzipHandler(s.routes()), // for clients that are far away
		ReadHeaderTimeout: readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       identify,
		ConnState:         s.count,
	}
	go func() {
		defer close(s.done)
		bounded := connlimit.Listen(&listener{l, s.owner, credentials}, connlimit.Options[int]{Of: uidOf, Each: maxConns, Refused: func(uid int) {
			s.log.Warn("admin connection refused: the user has too many", "uid", uid, "limit", maxConns)
		}})
		if err := s.http.Serve(bounded); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("admin server failed", "socket", s.socket, "error", err)
		}
	}()
	return s, nil
}

// count tracks the connections, whose goroutines http.Server does not wait for.
func (s *Server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.conns.Done()
	}
}

// Socket returns the path of the socket.
func (s *Server) Socket() string { return s.socket }

// Shutdown accepts no more requests and waits for those in progress until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	return errors.Join(err, s.Close())
}

// Close cancels requests in progress, waits until the backend has returned from them, and removes
// the socket.
func (s *Server) Close() error {
	var err error
	s.once.Do(func() {
		s.cancel()
		err = s.http.Close()
		<-s.done
		s.conns.Wait()
		removeOwn(s.socket, s.file)
	})
	return err
}
