package predict

import (
	"os"
	"strings"
	"testing"
)

// The README's example matches the program's output.
func TestTheExampleOfTheREADME(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(b), "```")
	if len(parts) < 5 {
		t.Fatalf("the README has %d parts between fences, want the file and the output", len(parts))
	}
	x, y, err := Read("README.md", []byte(strings.TrimPrefix(parts[1], "yaml\n")))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(Predict(x, y).Text(80)), strings.TrimSpace(parts[3]); got != want {
		t.Errorf("the README shows\n%s\nand the program says\n%s", want, got)
	}
}
