package screen

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
)

// humming is a gateway of many peers on which only traffic changes.
type humming struct {
	*fake
	begun time.Time
}

func (h humming) Status(ctx context.Context) (api.Status, error) {
	s, err := h.fake.Status(ctx)
	s.Peers = slices.Clone(s.Peers)
	s.Gateway.StartedAt = h.begun
	for i := range s.Peers {
		p, n := &s.Peers[i], uint64(time.Since(h.begun)/time.Second)
		if i%4 > 0 {
			continue // does not answer now
		}
		rate := float64(1000 + (n*uint64(i)*7919)%200_000)
		p.RxBytesPerSecond, p.TxBytesPerSecond = rate, rate/3
		p.RxBytes, p.TxBytes = n*uint64(rate), n*uint64(rate)/3
		p.Path.RTTSeconds = float64(10+(n*uint64(i))%20) / 1000
	}
	return s, err
}

// counter counts what is written.
type counter struct{ atomic.Int64 }

func (c *counter) Write(b []byte) (int, error) { c.Add(int64(len(b))); return len(b), nil }

// restBytes is how much an unused screen may write per second, since links may be slow.
const restBytes = 20_000

// The views that change the most, on a large terminal.
func TestAtRestLittleIsWritten(t *testing.T) {
	const settled, long = 3, 5 // seconds
	for _, c := range []struct {
		peers int
		view  rune
	}{{100, '1'}, {100, '3'}, {1000, '1'}, {1000, '3'}} {
		synctest.Test(t, func(t *testing.T) {
			tasks := newTasks(t.Context())
			var written counter
			program := newProgram(Options{Source: humming{many(c.peers), time.Now()}, Color: true, Out: &written}, tasks)
			ended := make(chan error, 1)
			go func() {
				_, err := program.Run()
				ended <- err
			}()
			program.Send(tea.WindowSizeMsg{Width: 200, Height: 60})
			program.Send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{c.view}})
			time.Sleep(settled * time.Second)
			before := written.Load()
			time.Sleep(long * time.Second)
			bytes := (written.Load() - before) / long
			t.Logf("%d peers, view %c: %d bytes a second", c.peers, c.view, bytes)
			if bytes == 0 || bytes > restBytes {
				t.Errorf("%d peers, view %c: %d bytes are written a second, want 1 to %d", c.peers, c.view, bytes, restBytes)
			}
			program.Quit()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			tasks.close()
		})
	}
}
