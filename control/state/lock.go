package state

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// errLocked is what tryLock returns when another process has the lock.
var errLocked = errors.New("locked")

// lockDir locks the directory for the life of the returned file. The lock ends with the process,
// however that ends; the pid in the file is for people.
func lockDir(dir string) (*os.File, error) {
	name := filepath.Join(dir, "lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, syscall.EROFS) {
		// The state can still be read, and a gateway whose disk became read-only should start again.
		if there, openErr := os.Open(name); openErr == nil {
			f, err = there, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", remedy(err))
	}
	if err := tryLock(f); err != nil {
		holder := "another process"
		if b, readErr := io.ReadAll(io.LimitReader(f, 32)); readErr == nil {
			if pid, convErr := strconv.Atoi(strings.TrimSpace(string(b))); convErr == nil {
				holder = "pid " + strconv.Itoa(pid)
			}
		}
		_ = f.Close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("state directory %s: %w by %s (stop that gateway, or give this one another spec.stateDir)", dir, ErrInUse, holder)
		}
		return nil, fmt.Errorf("lock state directory: %s: %w", name, err)
	}
	// The pid is for people: a full disk must not keep a gateway from starting.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}
