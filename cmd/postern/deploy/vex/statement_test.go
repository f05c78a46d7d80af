package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/cmd/postern/deploy/vex/linked"
)

// What is said of a release is what its program was found to be, stripped as it is.
func TestStatementsHoldForTheProgram(t *testing.T) {
	dir := t.TempDir()
	program, out := filepath.Join(dir, "postern"), filepath.Join(dir, "vex.json")
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "../..")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	if err := run(out, "v1.2.3", []string{program}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Statements) != len(absences) || !d.Timestamp.Equal(time.Unix(1767225600, 0)) {
		t.Fatalf("%d statements of %s, want %d of SOURCE_DATE_EPOCH:\n%s", len(d.Statements), d.Timestamp, len(absences), text)
	}
	p := d.Statements[0].Products[0]
	if p.ID != "pkg:golang/github.com/postern-dev/postern@v1.2.3" || !strings.HasPrefix(p.Subcomponents[0].ID, "pkg:golang/github.com/pion/dtls/v2@v2.") {
		t.Errorf("the statement is about %+v", p)
	}

	read, err := linked.Read(program)
	if err != nil {
		t.Fatal(err)
	}
	if read.Function("github.com/pion/stun/v2.(*Message)") == "" {
		t.Error("the functions of pion/stun are not there: dtls would not be seen either")
	}
	const module = "github.com/spf13/cobra"
	used := absence{id: "GO-0", module: module, code: []string{module + ".(*Command).Execute"}}
	if _, err := about(read, []absence{used}, "v1", time.Time{}); err == nil || !strings.Contains(err.Error(), ".(*Command).Execute") {
		t.Errorf("code that is linked: got %v, want an error that names it", err)
	}
	used.module = "example.net/absent"
	if d, err := about(read, []absence{used}, "v1", time.Time{}); err != nil || len(d.Statements) != 0 {
		t.Errorf("a module that is not there: got %+v, %v", d.Statements, err)
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	out := filepath.Join(t.TempDir(), "vex.json")
	for name, args := range map[string][]string{"no program": nil, "no such file": {"absent"}, "no Go program": {"/proc/self/status"}} {
		if err := run(out, "v1", args); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: a document was written", name)
		}
	}
}
