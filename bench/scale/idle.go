package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// connectTimeout bounds the time until all peers are connected. The peers start on the same
// cores.
const connectTimeout = 10 * time.Minute

// Idle is the cost of a hub with idle peers.
type Idle struct {
	Peers int `json:"peers"`
	// Anon and RSS are measured at the end of the window, in bytes.
	Anon uint64 `json:"anonBytes"`
	RSS  uint64 `json:"rssBytes"`
	// CPU is the average use over the window, in cores.
	CPU        float64 `json:"cpuCores"`
	Goroutines int     `json:"goroutines"`
	// Status is the median time of a `status` request after the window.
	Status time.Duration `json:"statusNanoseconds"`
	// Joins are the times that new peers took, one after the other: from the command that adds
	// the peer at the hub until it is connected.
	Joins []time.Duration `json:"joinNanoseconds"`
}

// Join is the median of Joins, 0 if there are none.
func (i Idle) Join() time.Duration { return median(i.Joins) }

// median returns the median of a list, the upper one of two, and 0 for an empty list.
func median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// IdleOptions configure the measurement of idle peers.
type IdleOptions struct {
	Options
	// Counts are the numbers of peers. Each is measured with a new hub.
	Counts []int
	// Settle is the time between the last connection and the window: peers are still busy for a
	// while after connecting.
	Settle, Window time.Duration
	// Joins is the number of new peers that are timed after the window.
	Joins int
}

// MeasureIdle measures a hub with each number of peers, one after the other.
func MeasureIdle(ctx context.Context, o IdleOptions) ([]Idle, error) {
	var out []Idle
	for _, n := range o.Counts {
		i, err := measureIdle(ctx, o, n)
		if err != nil {
			return out, fmt.Errorf("%d idle peers: %w", n, err)
		}
		out = append(out, i)
	}
	return out, nil
}

func measureIdle(ctx context.Context, o IdleOptions, n int) (i Idle, err error) {
	w, err := newWorld(o.Options, n, nil)
	if err != nil {
		return Idle{}, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	took, err := w.up(ctx)
	if err != nil {
		return Idle{}, err
	}
	w.say("%d peers connected within %v", n, took.Round(time.Millisecond))
	if err := sleep(ctx, o.Settle); err != nil {
		return Idle{}, err
	}
	if i, err = w.watch(ctx, o.Window); err != nil {
		return Idle{}, err
	}
	i.Peers = n
	w.say("%d peers: %.1f MB anonymous, %.2f %% of a core, %d goroutines", n, mb(i.Anon), 100*i.CPU, i.Goroutines)
	if i.Status, err = w.statusTime(ctx); err != nil {
		return Idle{}, err
	}
	for k := range o.Joins {
		took, err := w.join(ctx, fmt.Sprintf("new-%d", k+1))
		if err != nil {
			return Idle{}, err
		}
		i.Joins = append(i.Joins, took)
	}
	return i, nil
}

// watch measures the hub over a window.
func (w *world) watch(ctx context.Context, window time.Duration) (Idle, error) {
	before, err := w.hub.usage()
	if err != nil {
		return Idle{}, err
	}
	begun := time.Now()
	if err := sleep(ctx, window); err != nil {
		return Idle{}, err
	}
	after, err := w.hub.usage()
	if err != nil {
		return Idle{}, err
	}
	took := time.Since(begun)
	goroutines, err := w.hub.metric(ctx, "go_goroutines")
	if err != nil {
		return Idle{}, err
	}
	return Idle{
		Anon: after.Anon, RSS: after.RSS, CPU: float64(after.CPU-before.CPU) / float64(took), Goroutines: int(goroutines),
	}, nil
}

// statusTime returns the median time of a `status` request.
func (w *world) statusTime(ctx context.Context) (time.Duration, error) {
	const times = 9
	var all []time.Duration
	for range times {
		begun := time.Now()
		if _, err := w.hub.status(ctx); err != nil {
			return 0, err
		}
		all = append(all, time.Since(begun))
	}
	return median(all), nil
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func mb(n uint64) float64 { return float64(n) / 1e6 }
