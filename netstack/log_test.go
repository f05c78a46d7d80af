package netstack

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	gvlog "gvisor.dev/gvisor/pkg/log"
)

func TestSetLog(t *testing.T) {
	was := gvlog.Log().Emitter
	t.Cleanup(func() { gvlog.SetTarget(was) })
	for level, want := range map[slog.Level]string{slog.LevelInfo: "", slog.LevelDebug: "level=DEBUG msg=gvisor text=\"a segment \\n of a peer\"\n"} {
		var out bytes.Buffer
		SetLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		gvlog.Warningf("a segment %s of a peer", "\n")
		if _, got, _ := strings.Cut(out.String(), " "); got != want {
			t.Errorf("at level %v it logs %q, want %q", level, got, want)
		}
	}
}
