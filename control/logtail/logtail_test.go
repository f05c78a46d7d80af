package logtail

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestTheLastRecordsAreKeptAndPassedOn(t *testing.T) {
	var out bytes.Buffer
	tail := New(slog.NewTextHandler(&out, nil))
	log := slog.New(tail)
	for i := range kept + 10 {
		log.Info(fmt.Sprintf("record %d", i), "n", i) //nolint:sloglint // each of a kind of its own, or the bound would leave it out
	}
	log.Debug("below the level of the next handler")
	all := tail.After(0)
	if len(all) != kept || all[0].Seq != 11 || all[kept-1].Seq != kept+10 {
		t.Fatalf("got %d records, %d to %d", len(all), all[0].Seq, all[len(all)-1].Seq)
	}
	for i, r := range all {
		if r.Attrs[0].Value != fmt.Sprint(i+10) {
			t.Fatalf("record %d is %v", r.Seq, r)
		}
	}
	if got := tail.After(kept + 8); len(got) != 2 || got[0].Seq != kept+9 {
		t.Errorf("after %d: got %v", kept+8, got)
	}
	for _, seq := range []uint64{kept + 10, kept + 99, 1<<64 - 1} {
		if got := tail.After(seq); len(got) != 0 {
			t.Errorf("after %d: got %v", seq, got)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != kept+10 {
		t.Errorf("%d lines were passed on", n)
	}
}

func TestAttributesAreWrittenAsTheTextHandlerDoes(t *testing.T) {
	tail := New(slog.NewTextHandler(&bytes.Buffer{}, nil))
	key, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	slog.New(tail).With("a", 1).WithGroup("g").With("b", 2*time.Second).
		Warn("message", "err", errors.New("broken"), slog.Group("h", "c", true), "key", key)
	want := []api.LogAttr{{Key: "a", Value: "1"}, {Key: "g.b", Value: "2s"}, {Key: "g.err", Value: "broken"}, {Key: "g.h.c", Value: "true"}}
	got := tail.After(0)[0]
	if got.Level != "WARN" || got.Message != "message" || !cmp.Equal(got.Attrs[:4], want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if v := got.Attrs[4].Value; strings.Contains(v, key.Base64()) || strings.Contains(v, key.Hex()) {
		t.Error("a private key is in the log")
	}
}

func TestWhatTheNextHandlerLeavesOutIsKept(t *testing.T) {
	var out bytes.Buffer
	tail := New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))
	slog.New(tail).Info("kept")
	slog.New(tail).Debug("neither kept nor passed on")
	if got := tail.After(0); len(got) != 1 || got[0].Message != "kept" || out.Len() != 0 {
		t.Errorf("kept %v, passed on %q", got, out.String())
	}
}

type broken struct{ text string }

func (b *broken) Error() string { return b.text }

func TestAValueThatPanicsIsSurvived(t *testing.T) {
	tail := New(slog.NewTextHandler(&bytes.Buffer{}, nil))
	slog.New(tail).Info("message", "err", (*broken)(nil))
	if got := tail.After(0)[0].Attrs[0].Value; !strings.Contains(got, "PANIC") {
		t.Errorf("got %q", got)
	}
}

func TestARecordIsBounded(t *testing.T) {
	tail := New(slog.NewTextHandler(&bytes.Buffer{}, nil))
	var many []any
	for i := range 100 {
		many = append(many, fmt.Sprintf("key%d", i), strings.Repeat("ü", 4000))
	}
	slog.New(tail).Info("record", append(many, "last", strings.Repeat("m", 10_000))...)
	r := tail.After(0)[0]
	size := len(r.Message)
	for _, a := range r.Attrs {
		size += len(a.Key) + len(a.Value)
		if strings.ContainsRune(a.Value, '\ufffd') {
			t.Errorf("%s is cut within a character", a.Key)
		}
	}
	if size > maxRecord || len(r.Attrs) > maxAttrs {
		t.Errorf("%d bytes and %d attributes were kept", size, len(r.Attrs))
	}
}

func TestManyMayLogAtOnce(t *testing.T) {
	tail := New(slog.NewTextHandler(&bytes.Buffer{}, nil))
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 200 {
				slog.New(tail).Info(fmt.Sprintf("record %d of %d", i, worker)) //nolint:sloglint // each of a kind of its own, or the bound would leave it out
				tail.After(0)
			}
		})
	}
	wg.Wait()
	all := tail.After(0)
	for i, r := range all {
		if r.Seq != uint64(1600-kept+1+i) {
			t.Fatalf("record %d of %d has number %d", i, len(all), r.Seq)
		}
	}
}
