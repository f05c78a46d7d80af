package state

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/tunnel/peer"
)

// writerDir in the environment makes this test binary the writer that is killed.
const writerDir = "POSTERN_STATE_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDir); dir != "" {
		if err := writeForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// step is the i-th change of the writer: it adds, changes or removes one of 16 peers and stores i
// in a peer that always exists.
func step(p *Peers, i int) error {
	name := "p" + strconv.Itoa(i%16)
	if i%5 == 0 {
		p.Remove(name)
	} else if err := p.Put(Peer{Name: name, PublicKey: peer.PublicKey{1, byte(i % 16)}, Ticket: strconv.Itoa(i), Allow: []string{"auth"}}); err != nil {
		return err
	}
	return p.Put(Peer{Name: "count", PublicKey: peer.PublicKey{2}, Ticket: strconv.Itoa(i)})
}

// done returns the last step in the set.
func done(p Peers) (int, error) {
	c, ok := p.Get("count")
	if !ok {
		return 0, nil
	}
	return strconv.Atoi(c.Ticket)
}

// writeForEver continues from the directory's state and prints each step that Update
// acknowledged.
func writeForEver(dir string) error {
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	i, err := done(s.Peers())
	if err != nil {
		return err
	}
	for {
		i++
		if err := s.Update(func(p *Peers) error { return step(p, i) }); err != nil {
			return err
		}
		if _, err := fmt.Println(i); err != nil {
			return err
		}
	}
}

// TestKillDuringWritesLosesNothing repeatedly kills a writer at a random moment, and compares the
// disk's content with what was acknowledged.
func TestKillDuringWritesLosesNothing(t *testing.T) {
	const workers = 4
	var rounds, unacknowledged atomic.Int64
	t.Run("workers", func(t *testing.T) {
		for w := range workers {
			t.Run(strconv.Itoa(w), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(uint64(w), 1))
				dir := t.TempDir()
				var model Peers
				at := 0
				for range killRounds / workers {
					acknowledged := runAndKill(t, dir, r)
					rounds.Add(1)
					got := reopen(t, dir)
					seen, err := done(got)
					if err != nil {
						t.Fatal(err)
					}
					acknowledged = max(acknowledged, at)
					if seen != acknowledged && seen != acknowledged+1 {
						t.Fatalf("step %d was acknowledged; the disk has step %d", acknowledged, seen)
					}
					unacknowledged.Add(int64(seen - acknowledged))
					for at < seen {
						at++
						if err := step(&model, at); err != nil {
							t.Fatal(err)
						}
					}
					if diff := cmp.Diff(model.All(), got.All(), same); diff != "" {
						t.Fatalf("after step %d (-want +got):\n%s", seen, diff)
					}
				}
			})
		}
	})
	if !t.Failed() && rounds.Load() < killRounds/workers*workers {
		t.Errorf("%d rounds were run, want %d", rounds.Load(), killRounds)
	}
	t.Logf("%d rounds; in %d of them the last write was on disk but not acknowledged", rounds.Load(), unacknowledged.Load())
}

// runAndKill starts a writer, lets it acknowledge some steps, kills it some microseconds later,
// and returns the last step that it acknowledged.
func runAndKill(t *testing.T, dir string, r *rand.Rand) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$") //nolint:noctx // it is killed below
	cmd.Env = append(os.Environ(), writerDir+"="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	last := 0
	next := func() bool {
		if !lines.Scan() {
			return false
		}
		n, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil {
			return false // an incomplete line
		}
		last = n
		return true
	}
	for range 1 + r.IntN(4) {
		if !next() {
			_ = cmd.Wait()
			t.Fatalf("the writer failed: %s", stderr.String())
		}
	}
	moment := time.NewTimer(time.Duration(r.IntN(2000)) * time.Microsecond)
	<-moment.C
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for next() { // what it printed before it died
	}
	_ = cmd.Wait() // killed
	return last
}

// reopen opens the directory like the next gateway, and requires that nothing is logged.
func reopen(t *testing.T, dir string) Peers {
	t.Helper()
	var log bytes.Buffer
	s, err := Open(dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatalf("after a kill: %v", err)
	}
	defer func() { _ = s.Close() }()
	if log.Len() > 0 {
		t.Fatalf("after a kill: %s", log.String())
	}
	return s.Peers()
}
