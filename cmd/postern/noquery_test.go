package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/creack/pty"
)

// A command that has nothing to do with the screen must write to a terminal what it has to
// say, and ask it nothing: some terminals do not answer, and then every command takes 5 s.
func TestNothingIsAskedOfTheTerminal(t *testing.T) {
	command := exec.CommandContext(t.Context(), os.Args[0], "version")
	command.Args[0] = "postern"      // by which name the test binary is the program
	for _, v := range os.Environ() { // what a shell on a desktop has
		if name, _, _ := bytes.Cut([]byte(v), []byte("=")); string(name) != "CI" && string(name) != "TERM" {
			command.Env = append(command.Env, v)
		}
	}
	command.Env = append(command.Env, "TERM=xterm-256color")
	terminal, err := pty.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	seen, _ := io.ReadAll(terminal) // ends in EIO when the other side is closed
	if err := command.Wait(); err != nil {
		t.Fatalf("postern version: %v\n%s", err, seen)
	}
	if !bytes.HasPrefix(seen, []byte("postern ")) || bytes.ContainsRune(seen, '\x1b') {
		t.Errorf("got %q, want the version and no escape sequence", seen)
	}
}
