package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMeasureCountsTheWindowAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		// Two streams that receive one and two bytes each millisecond.
		count := func() []uint64 {
			ms := uint64(time.Since(start).Milliseconds())
			return []uint64{ms, 2 * ms}
		}
		r, err := Measure(Spec{Warmup: time.Second, Duration: 3 * time.Second}, count, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Seconds != 3 || r.Bytes != 9000 || !cmp.Equal(r.StreamBytes, []uint64{3000, 6000}) {
			t.Errorf("got %d bytes %v in %v s, want 9000 [3000 6000] in 3 s", r.Bytes, r.StreamBytes, r.Seconds)
		}
	})
}

func TestMeasureBeginsWhenItIsToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		count := func() []uint64 { return []uint64{uint64(time.Since(start).Seconds())} }
		spec := Spec{Warmup: time.Minute, From: start.Add(5 * time.Second), Duration: 3 * time.Second}
		if r, err := Measure(spec, count, nil); err != nil || r.Bytes != 3 || time.Since(start) != 8*time.Second {
			t.Errorf("got %d bytes, %v after %s; want 3 after 8 s", r.Bytes, err, time.Since(start))
		}
		if _, err := Measure(spec, count, nil); err == nil || !strings.Contains(err.Error(), "connected 3s after the window began") {
			t.Errorf("too late: got %v, want an error that says how late", err)
		}
	})
}

func TestMeasureEndsWhenTheLoadFails(t *testing.T) {
	broken := errors.New("reset by peer")
	for name, after := range map[string]time.Duration{"warming up": time.Second, "measuring": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed := make(chan error, 1)
				time.AfterFunc(after, func() { failed <- broken })
				start := time.Now()
				_, err := Measure(Spec{Warmup: 2 * time.Second, Duration: time.Hour}, func() []uint64 { return nil }, failed)
				if !errors.Is(err, broken) || time.Since(start) != after {
					t.Errorf("got %v after %s, want %v after %s", err, time.Since(start), broken, after)
				}
			})
		})
	}
}

func TestMeasureWritesTheProfilesAskedFor(t *testing.T) {
	dir := t.TempDir()
	spec := Spec{
		Duration:    time.Millisecond,
		CPUProfile:  filepath.Join(dir, "cpu"),
		HeapProfile: filepath.Join(dir, "heap"),
	}
	if _, err := Measure(spec, func() []uint64 { return nil }, nil); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{spec.CPUProfile, spec.HeapProfile} {
		b, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
			t.Errorf("%s: %d bytes, %v; want a gzipped profile", file, len(b), err)
		}
	}
	spec.CPUProfile = filepath.Join(dir, "none", "cpu")
	if _, err := Measure(spec, func() []uint64 { return nil }, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("profile in a missing folder: got %v, want %v", err, os.ErrNotExist)
	}
}

// pipes is a listener with in-memory connections. Each write takes a millisecond, so that a
// bubble's time advances.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.accept <- slowWriter{b}:
		return slowWriter{a}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type slowWriter struct{ net.Conn }

func (w slowWriter) Write(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return w.Conn.Write(b)
}

// dyingWriter fails after a number of writes.
type dyingWriter struct {
	net.Conn
	left int
	err  error
}

func (w *dyingWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, w.err
	}
	return w.Conn.Write(b)
}

func TestStreamsCountsEveryStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		closed := false
		r, err := Run(t.Context(), Spec{Streams: 3, Warmup: 50 * time.Millisecond, Duration: 200 * time.Millisecond},
			Ends{Listener: p, Dial: p.dial, Close: func() error { closed = true; return nil }})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.StreamBytes) != 3 {
			t.Fatalf("got %d streams, want 3", len(r.StreamBytes))
		}
		for i, n := range r.StreamBytes {
			// One block each millisecond, ± 1 for the ends of the window.
			if blocks := n / BlockSize; blocks < 199 || blocks > 201 {
				t.Errorf("stream %d: got %d blocks in 200 ms, want 200", i, blocks)
			}
		}
		if !closed {
			t.Error("the subject was not closed")
		}
	})
}

func TestStreamsReportsWhatBreaks(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		name string
		spec Spec
		dial func(p *pipes) func(context.Context) (net.Conn, error)
		want error
	}{
		{"dial fails", Spec{Streams: 1, Duration: time.Second}, func(*pipes) func(context.Context) (net.Conn, error) {
			return func(context.Context) (net.Conn, error) { return nil, refused }
		}, refused},
		{"nothing is accepted", Spec{Streams: 1, Duration: time.Second}, func(*pipes) func(context.Context) (net.Conn, error) {
			return func(context.Context) (net.Conn, error) { a, _ := net.Pipe(); return a, nil }
		}, context.DeadlineExceeded},
		{"a stream dies", Spec{Streams: 1, Duration: time.Hour}, func(p *pipes) func(context.Context) (net.Conn, error) {
			return func(ctx context.Context) (net.Conn, error) {
				c, err := p.dial(ctx)
				return &dyingWriter{Conn: c, left: 10, err: refused}, err
			}
		}, refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				if _, err := Run(t.Context(), c.spec, Ends{Listener: p, Dial: c.dial(p)}); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
	p := newPipes()
	if _, err := Run(t.Context(), Spec{Duration: time.Second}, Ends{Listener: p, Dial: p.dial}); err == nil {
		t.Error("no streams: got no error")
	}
}

func TestParseSpec(t *testing.T) {
	want := Spec{Subject: "x", Streams: 4, Warmup: time.Second, Duration: 3 * time.Second, CPUProfile: "cpu"}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseSpec(string(text))
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "tcp-1", `{"subject":"x"}`, `{"durationNanoseconds":-1}`} {
		if s, err := ParseSpec(bad); err == nil {
			t.Errorf("ParseSpec(%q) = %+v, want an error", bad, s)
		}
	}
}

func TestResultRates(t *testing.T) {
	r := Result{Bytes: 1e9, Seconds: 2, UserSeconds: 2.5, SystemSeconds: 0.7}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"bits per second", r.BitsPerSecond(), 4e9},
		{"bits per processor second", r.BitsPerCPUSecond(), 2.5e9},
		{"cores", r.Cores(), 1.6},
		{"rate without a window", Result{Bytes: 1}.BitsPerSecond(), 0},
		{"rate without processor time", Result{Bytes: 1, Seconds: 1}.BitsPerCPUSecond(), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestMainWritesOneLine(t *testing.T) {
	var out bytes.Buffer
	s := Program{Alone: map[string]Alone{
		"x": func(context.Context, Spec) (Result, error) { return Result{Bytes: 5, Seconds: 1}, nil },
	}}
	if err := s.Main(t.Context(), `{"subject":"x","durationNanoseconds":1}`, &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), `"bytes":5`) {
		t.Errorf("got %q, want one line with the result", out.String())
	}
}
