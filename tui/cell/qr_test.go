package cell_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/testenv/qrscan"
	"github.com/postern-dev/postern/tui/cell"
)

func TestCodesScan(t *testing.T) {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 100, 216, 217, 335, 900} {
		text := make([]byte, n)
		for i := range text {
			text[i] = digits[r.IntN(len(digits))]
		}
		want := "POSTERN1" + string(text)
		lines, err := cell.Code(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := qrscan.Scan(strings.Join(lines, "\n")); err != nil || got != want {
			t.Errorf("%d characters are read as %q: %v", n, got, err)
		}
		if width := ansi.StringWidth(lines[0]); n == 216 && (width > 60 || len(lines) > 30) {
			t.Errorf("a usual ticket's code takes %d × %d", width, len(lines))
		}
	}
	if _, err := cell.Code(strings.Repeat("A", 5000)); err == nil {
		t.Error("a code of 5,000 characters")
	}
}
