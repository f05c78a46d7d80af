package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"testing"
)

// pion/stun's client file imports pion/dtls, which has GO-2026-4479, and so does that of
// the version that pion/turn uses. Of the first only the message codec is used here, of the
// second only what TURN takes, so the linker must have dropped dtls's connection code. The
// program with its tests has all that the program alone has, and is there already.
func TestNoDTLSConnectionCodeIsLinked(t *testing.T) {
	names := functions(t)
	if !bytes.Contains(names, []byte("pion/stun/v2.(*Message)")) {
		t.Fatal("the functions of pion/stun are not there: the test would not see dtls either")
	}
	for _, version := range []string{"v2", "v3"} {
		if i := bytes.Index(names, fmt.Appendf(nil, "pion/dtls/%s.(*Conn)", version)); i >= 0 {
			name, _, _ := bytes.Cut(names[i:], []byte{0})
			t.Errorf("dtls connection code is linked: %s", name)
		}
	}
}

// functions is the running program's table of functions, which has the names of all that
// are linked, one after the other; unlike the symbols it is in every program.
func functions(t *testing.T) []byte {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := program.Close(); err != nil {
			t.Error(err)
		}
	}()
	table := program.Section(".gopclntab")
	if table == nil {
		t.Fatalf("%s has no table of functions", path)
	}
	data, err := table.Data()
	if err != nil {
		t.Fatal(err)
	}
	return data
}
