package gateway_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/lab"
)

// sign is what a gateway was told of a later start of its key.
type sign struct {
	site, peer string
	boot       uint64
	at         time.Time
}

// A copy of a gateway that starts later is heard by the peer, and the gateway that was
// there before is told; the copy is not.
func TestAGatewayHearsOfALaterOneWithItsKey(t *testing.T) {
	signs := make(chan sign, 1024)
	w := newWorld(t, func(site string, o *gateway.Options) {
		o.OnSuperseded = func(peer string, boot uint64) { signs <- sign{site, peer, boot, time.Now()} }
	})
	w.peer()
	double := w.addSite("copy", "203.0.113.66")
	w.stop(double)
	w.copyState(w.Edge, double)
	if len(signs) > 0 {
		t.Fatalf("a gateway alone with its key is told %+v", <-signs)
	}
	start := time.Now()
	w.start(double)
	var first sign
	w.await("edge is told", func() string {
		select {
		case s := <-signs:
			first = s
			return ""
		default:
			return "nobody is"
		}
	})
	t.Logf("told after %v", first.at.Sub(start).Round(time.Millisecond))
	if first.site != "edge" || first.peer != "cloud" || first.boot == 0 {
		t.Errorf("got %+v, want edge told by cloud", first)
	}
}

// copyState gives a site the state of another, which runs on, as a restored backup does:
// each file as it is when it is read. One in the making may be gone by then.
func (w *world) copyState(from, to *lab.Site) {
	w.t.Helper()
	w.newDirectory(to)
	dir := func(s *lab.Site) string { return filepath.Join(filepath.Dir(s.File), "state") }
	source := os.DirFS(dir(from))
	if err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(dir(to), name), 0o700)
		}
		b, err := fs.ReadFile(source, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir(to), name), b, 0o600)
	}); err != nil {
		w.t.Fatal(err)
	}
}
