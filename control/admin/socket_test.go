package admin

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocketIsProtected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "for", "p.sock")
	s, err := Listen(ServerOptions{Socket: path, Backend: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // The test is over.
	for file, want := range map[string]fs.FileMode{path: 0o660, filepath.Dir(path): 0o750} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", file, got, want)
		}
	}
}

func TestLivingGatewayIsNotReplaced(t *testing.T) {
	client := serve(t, &fake{}, peerCredentials)
	_, err := Listen(ServerOptions{Socket: client.Socket(), Backend: &fake{}})
	if !errors.Is(err, ErrAlreadyRunning) || !strings.Contains(err.Error(), "another gateway answers on "+client.Socket()) {
		t.Errorf("got %v, want ErrAlreadyRunning with the path", err)
	}
	if _, err := client.Status(within(t)); err != nil {
		t.Errorf("the living one was disturbed: %v", err)
	}
}

func TestAPathWithoutASocketIsExplained(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                            "it is not a socket",
		file:                           "it is not a socket",
		"/" + strings.Repeat("s", 107): "the path is 108 bytes long, and a socket's holds 107",
	} {
		if _, err := NewClient(path).Status(within(t)); !errors.Is(err, ErrNoGateway) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want ErrNoGateway and %q", path, err, want)
		}
	}
}

func TestDeadGatewaysSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // As a killed process leaves it.
	l.Close()
	if _, err := NewClient(path).Status(within(t)); !errors.Is(err, ErrNoGateway) || !strings.Contains(err.Error(), "stopped without removing") {
		t.Errorf("asking the dead: got %v, want ErrNoGateway", err)
	}
	s, err := Listen(ServerOptions{Socket: path, Backend: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(path).Status(within(t)); err != nil {
		t.Error(err)
	}
	if err := s.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
	if _, err := NewClient(path).Status(within(t)); !errors.Is(err, ErrNoGateway) || !strings.Contains(err.Error(), "there is no such socket") {
		t.Errorf("after shutdown: got %v, want ErrNoGateway", err)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(ServerOptions{Socket: path, Backend: &fake{}}); err == nil || !strings.Contains(err.Error(), "exists and is no socket") {
		t.Errorf("got %v, want a refusal", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
		t.Errorf("the file is gone: %q, %v", data, err)
	}
}

// A gateway whose path another process has taken over leaves the other's socket alone.
func TestOnlyTheOwnSocketIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	first, err := Listen(ServerOptions{Socket: path, Backend: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(ServerOptions{Socket: path, Backend: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close() //nolint:errcheck // The test is over.
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := NewClient(path).Status(within(t)); err != nil {
		t.Errorf("the second gateway lost its socket: %v", err)
	}
}

func TestPathsThatCannotBe(t *testing.T) {
	for path, want := range map[string]string{
		"":                             `"" is no path`,
		"@abstract":                    `"@abstract" is no path`,
		"/" + strings.Repeat("s", 107): "is 108 bytes long, and a socket's path holds 107 (choose a shorter one)",
	} {
		if _, err := Listen(ServerOptions{Socket: path, Backend: &fake{}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", path, err, want)
		}
	}
}
