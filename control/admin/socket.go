package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/config"
)

// Modes of the socket and of a directory created for it.
const (
	socketMode    fs.FileMode = 0o660
	directoryMode fs.FileMode = 0o750
)

// probeTimeout bounds the attempt to reach the process behind an existing socket. A running one
// accepts at once; one whose queue is full is running as well.
const probeTimeout = 2 * time.Second

// listenSocket creates the socket. The returned info identifies the file.
func listenSocket(path string) (net.Listener, os.FileInfo, error) {
	if path == "" || path[0] == '@' {
		return nil, nil, fmt.Errorf("listen on the admin socket: %q is no path", path)
	}
	if len(path) > config.MaxSocketPath {
		return nil, nil, fmt.Errorf("listen on the admin socket: %s is %d bytes long, and a socket's path holds %d (choose a shorter one)", path, len(path), config.MaxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), directoryMode); err != nil {
		return nil, nil, fmt.Errorf("make the admin socket's directory: %w", err)
	}
	if err := clearStale(path); err != nil {
		return nil, nil, err
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, nil, fmt.Errorf("listen on the admin socket: %w", err)
	}
	// Between bind and chmod the mode depends on the umask. That exposes nothing: the client's
	// credentials are checked on every connection.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	info, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, socketMode)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("protect the admin socket: %w", err), l.Close())
	}
	return l, info, nil
}

// clearStale removes a socket that nobody listens on.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on the admin socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen on the admin socket: %s exists and is no socket (remove it, or choose another path)", path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w on %s (stop it, or choose another socket with --socket)", ErrAlreadyRunning, path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("replace the socket of a dead gateway: %w", err)
	}
	return nil
}

// removeOwn removes the socket unless another process has taken the path meanwhile. A leftover is
// harmless: the next start finds that nobody answers.
func removeOwn(path string, own os.FileInfo) {
	if now, err := os.Lstat(path); err == nil && os.SameFile(now, own) {
		_ = os.Remove(path)
	}
}
