//go:build linux

package netlab

import (
	"math"
	"os"
	"testing"
)

func TestNamespaceNamesTellTheirOwner(t *testing.T) {
	for _, o := range []owner{{pid: 1, start: 0}, {pid: 4194304, start: math.MaxUint64}, {pid: 17, start: 123456}} {
		got, ok := parseOwner(o.namePrefix() + "ab12-edge-nat")
		if !ok || got != o {
			t.Errorf("owner of %q: got %+v %v, want %+v", o.namePrefix(), got, ok, o)
		}
	}
	for _, name := range []string{"", "k-edge", "plab", "plab-", "plab-x-1-a", "plab-12", "plab-12-1", "plab--1-a", "plab-0-1-a", "plab-5-?-a"} {
		if o, ok := parseOwner(name); ok {
			t.Errorf("namespace %q: got owner %+v, want none", name, o)
		}
	}
}

func TestOwnerIsAliveOnlyAsTheSameProcess(t *testing.T) {
	own, err := processOwner(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !own.alive() {
		t.Error("this process: got dead, want alive")
	}
	if later := (owner{pid: own.pid, start: own.start + 1}); later.alive() {
		t.Error("another process with this ID: got alive, want dead")
	}
	if none := (owner{pid: math.MaxInt32, start: 1}); none.alive() {
		t.Error("impossible process: got alive, want dead")
	}
}
