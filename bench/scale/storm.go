package scale

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Storm describes how all peers came back after a restart of the hub.
type Storm struct {
	Peers int `json:"peers"`
	// Killed says that the hub was killed instead of terminated.
	Killed bool `json:"killed"`
	// Down is the time from the signal to the next start, Answers from then to the first answer
	// to `status`.
	Down    time.Duration `json:"downNanoseconds"`
	Answers time.Duration `json:"answersNanoseconds"`
	// Most and Back are the times from the start until 90 % and all of the peers are connected,
	// according to the hub.
	Most time.Duration `json:"mostNanoseconds"`
	Back time.Duration `json:"backNanoseconds"`
	// Slowest is the longest time of the Asked `status` requests after the first answer.
	Slowest time.Duration `json:"slowestNanoseconds"`
	Asked   int           `json:"asked"`
	// CPU is the hub's processor time until all peers are connected, PeakAnon the highest anonymous
	// memory that was sampled, in bytes.
	CPU      time.Duration `json:"cpuNanoseconds"`
	PeakAnon uint64        `json:"peakAnonBytes"`
}

// StormOptions configure the measurement of a storm.
type StormOptions struct {
	Options
	Peers int
	// Settle is the time between the last connection and the restart.
	Settle time.Duration
}

// statusEvery is the interval of the status requests during the restart.
const statusEvery = 100 * time.Millisecond

// MeasureStorm restarts a hub with connected peers: once by SIGTERM, as a rolling update does,
// and once by SIGKILL, as a power failure does.
func MeasureStorm(ctx context.Context, o StormOptions) (out []Storm, err error) {
	w, err := newWorld(o.Options, o.Peers, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	took, err := w.up(ctx)
	if err != nil {
		return nil, err
	}
	w.say("%d peers connected within %v", o.Peers, took.Round(time.Millisecond))
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := sleep(ctx, o.Settle); err != nil {
			return out, err
		}
		storm, err := w.storm(ctx, s)
		if err != nil {
			return out, fmt.Errorf("restart by %v: %w", s, err)
		}
		w.say("%d peers back %v after a restart by %v, the slowest status took %v", o.Peers, storm.Back.Round(time.Millisecond), s, storm.Slowest.Round(time.Millisecond))
		out = append(out, storm)
	}
	return out, nil
}

func (w *world) storm(ctx context.Context, s syscall.Signal) (Storm, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	out := Storm{Peers: len(w.members), Killed: s == syscall.SIGKILL}
	begun := time.Now()
	if err := w.hub.stop(s); err != nil {
		return Storm{}, err
	}
	if err := w.hub.start(); err != nil {
		return Storm{}, err
	}
	started := time.Now()
	out.Down = started.Sub(begun)
	if err := w.hub.answers(ctx); err != nil {
		return Storm{}, err
	}
	out.Answers = time.Since(started)
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		asked := time.Now()
		status, err := w.hub.status(ctx)
		if err != nil {
			return Storm{}, err
		}
		out.Asked++
		out.Slowest = max(out.Slowest, time.Since(asked))
		u, err := w.hub.usage()
		if err != nil {
			return Storm{}, err
		}
		out.CPU, out.PeakAnon = u.CPU, max(out.PeakAnon, u.Anon)
		n := connectedIn(status)
		if out.Most == 0 && 10*n >= 9*out.Peers {
			out.Most = time.Since(started)
		}
		if n == out.Peers {
			out.Back = time.Since(started)
			return out, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Storm{}, fmt.Errorf("%d of %d peers are back: %w", n, out.Peers, ctx.Err())
		}
	}
}
