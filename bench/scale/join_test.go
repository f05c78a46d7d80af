package scale

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// nobody returns a new peer, and a hub that is not running.
func nobody(t *testing.T) (member, *Hub) {
	t.Helper()
	ms, err := newMembers(2)
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHub(hubOptions{dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return ms[1], h
}

func TestAJoinerThatFailsSaysWhy(t *testing.T) {
	ctx, o := testOptions(t)
	m, hub := nobody(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		program []string
		want    []string
	}{
		{"a folder that is a file", o.Joiner, []string{`wait for "ready"`, "exit status 1: join a hub: start peer-1: mkdir", "not a directory"}},
		{"another program", []string{o.Joiner[0], brokenArg, "hello"}, []string{`wait for "ready": got "hello"`, "exit status 1: out of luck"}},
		{"no program", []string{file}, []string{"start the process of peer-2", "permission denied"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := startJoiner(ctx, c.program, file, m, hub)
			if err == nil {
				t.Fatal("it is ready")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
		})
	}
}

func TestAPeerWhoseProcessFailsIsRemoved(t *testing.T) {
	ctx, o := testOptions(t)
	o.Joiner = []string{o.Joiner[0], brokenArg, lineReady}
	w, err := newWorld(o, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := w.hub.start(); err != nil {
		t.Fatal(err)
	}
	if err := w.hub.answers(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.join(ctx, "new"); err == nil || !strings.Contains(err.Error(), "end the process of new: exit status 1: out of luck") {
		t.Errorf("got %v, want the process's error", err)
	}
	s, err := w.hub.status(ctx)
	if err != nil || len(s.Peers) != 1 || s.Peers[0].Name != w.members[0].name {
		t.Errorf("got %v, %v; want only the hub's first peer", names(s), err)
	}
}

func names(s api.Status) (out []string) {
	for _, p := range s.Peers {
		out = append(out, p.Name)
	}
	return out
}

func TestAJoinerEndsWithItsContext(t *testing.T) {
	ctx, o := testOptions(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m, hub := nobody(t)
	j, err := startJoiner(ctx, o.Joiner, t.TempDir(), m, hub)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.tell(lineStart); err != nil {
		t.Error(err)
	}
	cancel()
	if err := j.await(ctx, lineConnected); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	// It was either about to start its gateway or waiting for the connection.
	if err := j.end(); err == nil || !strings.Contains(err.Error(), "exit status 1: ") || !strings.Contains(err.Error(), m.name) {
		t.Errorf("got %v, want an error that says how far it came", err)
	}
}
