package config

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

// noFiles returns one secret for every path, so that a fuzzed path reads nothing on this machine.
type noFiles struct{}

func (noFiles) Stat(string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }
func (noFiles) ReadFile(path string) ([]byte, error) {
	if strings.HasSuffix(path, ".key") {
		return []byte(alicePrivate), nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

// Whatever the file contains, loading does not panic. It returns a configuration within its bounds,
// or problems of one printable line each.
func FuzzLoad(f *testing.F) {
	f.Add(full)
	f.Add(peerHead + "    stock: true\n    allowedIPs: [10.9.0.2/32]\n")
	f.Add(head + "spec: {services: {named: [{name: m, protocol: UDP, ports: 5000-5010, address: \"a:1\"}]}}")
	f.Add("{}")
	f.Add("a: &a [*a]\n")
	f.Add(head + "spec: {services: {auth: {issuer: {csr: {}}}}}")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := load("f.yaml", []byte(text), Overrides{}, noFiles{})
		if err == nil {
			if r.Name == "" || r.StateDir == "" || r.AdminSocket == "" || len(r.Values()) == 0 {
				t.Errorf("accepted without a name, state directory or socket: %+v", r)
			}
			if d := Diff(r, r); !d.IsEmpty() {
				t.Errorf("differs from itself: %+v", d)
			}
			return
		}
		var problems Problems
		if !errors.As(err, &problems) {
			t.Fatalf("the error is a %T, want Problems", err)
		}
		for _, p := range problems {
			if line := p.Error(); strings.ContainsAny(line, "\n\r\x1b") || !strings.HasPrefix(line, "f.yaml:") {
				t.Errorf("not one line of this file: %q", line)
			}
		}
	})
}
