//go:build linux

// Package screen measures `postern tui` as users run it: a process on a terminal, connected to a
// gateway with a thousand peers whose values change. The gateway is a fake behind a real admin
// socket: a thousand real gateways would dominate the measurement.
package screen

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/history"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
)

const (
	peers         = 1000
	width, height = 200, 60
	// Bounds: cores in use at rest, time from a key to the screen that shows its effect, and
	// bytes a second written at rest, which slow links have to carry.
	mostCPU   = 0.05
	mostWait  = 50 * time.Millisecond
	mostBytes = 20_000
	// farAway is the one-way delay to an operator behind a link of 300 ms.
	farAway = 150 * time.Millisecond
)

// crowd is a gateway with many peers: copies of a real one. A quarter of them change each time.
type crowd struct {
	admin.Backend // methods that the screen does not call
	status        api.Status
	report        api.CheckReport
	past          *history.History

	mu    sync.Mutex
	rand  *rand.Rand
	bytes []uint64
}

// newCrowd copies a lab's peer, with an hour of history.
func newCrowd(t *testing.T) *crowd {
	t.Helper()
	l, err := lab.Build(t.Context(), lab.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := l.Run(t.Context(), lab.Progress{}); err != nil {
		t.Fatal(err)
	}
	c := &crowd{rand: rand.New(rand.NewPCG(24, 1000)), bytes: make([]uint64, peers), past: history.New(time.Now().Add(-time.Hour))}
	if c.status, err = l.Edge.Gateway.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.report, err = l.Edge.Gateway.Checks(t.Context()); err != nil {
		t.Fatal(err)
	}
	model, checks := c.status.Peers[0], c.report.Checks
	c.status.Peers, c.report.Checks = nil, nil
	var names []string
	for i := range peers {
		p := model
		p.Name, p.PublicKey = fmt.Sprintf("site-%d", i+1), fmt.Sprintf("%043d=", i+1)
		c.status.Peers = append(c.status.Peers, p)
		for _, check := range checks {
			if check.Peer != "" {
				check.Peer = p.Name
				c.report.Checks = append(c.report.Checks, check)
			}
		}
		names = append(names, p.Name)
	}
	c.past.SetPeers(names)
	for at := time.Now().Add(-time.Hour); at.Before(time.Now()); at = at.Add(time.Minute) {
		for _, name := range names {
			c.past.Observe(at, name, history.Sample{State: api.StateConnected, Path: api.PathDirect, RTT: time.Duration(c.rand.IntN(40)) * time.Millisecond})
		}
	}
	return c
}

func (c *crowd) Status(context.Context) (api.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	s.Peers = slices.Clone(s.Peers)
	for i := range s.Peers {
		p := &s.Peers[i]
		if i%4 == 0 {
			p.RxBytesPerSecond, p.TxBytesPerSecond = float64(c.rand.IntN(200_000)), float64(c.rand.IntN(90_000))
			p.Path.RTTSeconds = float64(10+c.rand.IntN(20)) / 1000
		}
		c.bytes[i] += uint64(p.RxBytesPerSecond)
		p.RxBytes, p.TxBytes = c.bytes[i], c.bytes[i]/3
	}
	return s, nil
}

func (c *crowd) Checks(context.Context) (api.CheckReport, error) { return c.report, nil }
func (c *crowd) Check(context.Context, api.CheckRequest) (api.CheckReport, error) {
	return c.report, nil
}
func (c *crowd) Log(context.Context, uint64) (api.Log, error) { return api.Log{}, nil }
func (c *crowd) ClusterServices(context.Context, string) (s api.ClusterServices, _ error) {
	return s, nil
}

func (c *crowd) History(_ context.Context, r api.HistoryRequest) (api.History, error) {
	now := time.Now()
	h := api.History{Kind: "History", Since: c.past.Since(), From: now.Add(-r.Since), To: now}
	for _, name := range r.Peers {
		if p, ok := c.past.Read(name, h.From, now, r.Step); ok {
			h.Peers = append(h.Peers, p)
		}
	}
	return h, nil
}

// viewer is the screen's process. The test holds the other end of its terminal, behind a link.
type viewer struct {
	*testing.T
	terminal *os.File
	process  *exec.Cmd
	// delay is the link's, one way.
	delay time.Duration

	mu      sync.Mutex
	written int64
	news    chan arrival
}

// arrival is output of the screen, and when it arrives.
type arrival struct {
	text string
	at   time.Time
}

func view(t *testing.T, c *crowd, delay time.Duration) *viewer {
	t.Helper()
	dir, err := os.MkdirTemp("", "screen") // short: the path of a socket in it is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "admin.sock")
	server, err := admin.Listen(admin.ServerOptions{Socket: socket, Backend: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	v := &viewer{T: t, delay: delay, news: make(chan arrival, 1024), process: exec.CommandContext(context.WithoutCancel(t.Context()), "../../bin/postern", "--socket", socket, "tui")}
	v.process.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	if v.terminal, err = pty.StartWithSize(v.process, &pty.Winsize{Rows: height, Cols: width}); err != nil {
		t.Fatalf("%v (run make build)", err)
	}
	go v.read()
	t.Cleanup(func() {
		_, _ = io.WriteString(v.terminal, "q")
		if err := v.process.Wait(); err != nil {
			t.Error(err)
		}
		v.terminal.Close()
	})
	return v
}

func (v *viewer) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := v.terminal.Read(buf)
		if err != nil {
			return
		}
		v.mu.Lock()
		v.written += int64(n)
		v.mu.Unlock()
		v.news <- arrival{string(buf[:n]), time.Now().Add(v.delay)}
	}
}

// press types keys, which arrive after the delay.
func (v *viewer) press(keys string) {
	time.AfterFunc(v.delay, func() { _, _ = io.WriteString(v.terminal, keys) })
}

func (v *viewer) bytes() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.written
}

// await waits until text has been written, and drops the output before it.
func (v *viewer) await(text string) {
	v.Helper()
	limit := time.After(patience.Left())
	for seen := ""; !strings.Contains(seen, text); {
		select {
		case s := <-v.news:
			time.Sleep(time.Until(s.at))
			seen = seen[max(0, len(seen)-len(text)):] + s.text
		case <-limit:
			v.Fatalf("%q was never written", text)
		}
	}
}

// drain drops all output for the given time.
func (v *viewer) drain(during time.Duration) {
	end := time.After(during)
	for {
		select {
		case <-v.news:
		case <-end:
			return
		}
	}
}

// cpu returns the processor time that the process has used.
func (v *viewer) cpu() time.Duration {
	v.Helper()
	const ticks = 100 // a second, on all Linux platforms that we build for
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.process.Process.Pid))
	if err != nil {
		v.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var sum time.Duration
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			v.Fatal(err)
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum
}

// TestAThousandPeers prints the screen's costs; see `make bench-tui`. The number of bytes written
// does not depend on the machine and is always checked. Processor time has a margin for slow
// machines.
func TestAThousandPeers(t *testing.T) {
	during, err := time.ParseDuration(os.Getenv("POSTERN_BENCH_TUI"))
	if err != nil {
		t.Skip("set POSTERN_BENCH_TUI to the time for which to measure each view, such as 60s")
	}
	c := newCrowd(t)
	for _, link := range []struct {
		name  string
		delay time.Duration
	}{{"at the gateway", 0}, {"over a link of 300 ms", farAway}} {
		t.Run(link.name, func(t *testing.T) {
			v := view(t, c, link.delay)
			v.await("▸ ")
			v.rests(during)
			v.answers()
		})
	}
}

// rests measures the screen at rest, in the views that change most.
func (v *viewer) rests(during time.Duration) {
	v.Helper()
	for _, s := range []struct{ key, view string }{{"3", "Throughput"}, {"1", "Overview"}} {
		v.press(s.key)
		v.await("[" + s.key + " " + s.view + "]")
		v.drain(5 * time.Second)
		before, used, start := v.bytes(), v.cpu(), time.Now()
		v.drain(during)
		took := time.Since(start).Seconds()
		share, rate := (v.cpu()-used).Seconds()/took, float64(v.bytes()-before)/took
		v.Logf("%-10s at rest: %.1f %% of a core (at most %.0f %%), %.1f kB/s written (at most %d)", s.view, 100*share, 100*mostCPU, rate/1000, mostBytes/1000)
		if rate == 0 || rate > mostBytes {
			v.Errorf("%s writes %.0f bytes a second, want 1 to %d", s.view, rate, mostBytes)
		}
		if share > 2*mostCPU {
			v.Errorf("%s takes %.1f %% of a core, more than twice the bound", s.view, 100*share)
		}
	}
}

// answers measures the time from a key until its effect is visible, and the bytes written for it.
func (v *viewer) answers() {
	v.Helper()
	const keys = 60
	var waits []time.Duration
	var written int64
	for i := range keys {
		v.drain(300 * time.Millisecond)
		before, start := v.bytes(), time.Now()
		v.press("jk"[i%2 : i%2+1])
		v.await("▸") // the row that is selected now
		waits = append(waits, time.Since(start))
		written += v.bytes() - before
	}
	slices.Sort(waits)
	at := func(share float64) time.Duration { return waits[int(share*(keys-1))].Round(time.Millisecond) }
	v.Logf("from key to picture: median %v, 95 %% within %v, most %v (at most %v); %d bytes a key", at(.5), at(.95), at(1), mostWait+2*v.delay, written/keys)
	if at(.5) < 2*v.delay {
		v.Errorf("half of the keys are answered sooner than the link's delay")
	}
}
