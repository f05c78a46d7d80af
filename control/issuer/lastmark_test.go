package issuer

import (
	"bytes"
	"testing"

	"github.com/postern-dev/postern/control/report"
)

// The mark depends on the text, and is not computed again for the last text.
func TestAMarkIsComputedOnce(t *testing.T) {
	var l lastMark
	one := bytes.Repeat([]byte("one"), 1<<10)
	for _, text := range [][]byte{one, []byte("two"), one, nil} {
		if got := l.of(text); got != report.MarkOf(string(text)) {
			t.Errorf("of %.8q: got %s", text, got)
		}
	}
	l.of(one)
	if n := testing.AllocsPerRun(10, func() { l.of(bytes.Clone(one)) }); n > 1 { // the clone
		t.Errorf("the same text costs %v allocations", n)
	}
}
