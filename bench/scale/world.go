package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Options are common to all measurements.
type Options struct {
	// Gateway is the command line of a gateway, up to the flag for the configuration file:
	// bin/postern gateway --config.
	Gateway []string
	// Joiner is the command line of a program that calls Join, for each new peer that is timed.
	Joiner []string
	// Log is the folder for the hubs' logs; empty means none.
	Log string
	// Progress is called with progress messages; it may be nil.
	Progress func(string)
}

// world is a hub with its peers, in a temporary folder.
type world struct {
	Options
	dir     string
	members []member
	hub     *Hub
	fleet   *Fleet
	log     *os.File
	local   map[string]api.ListenAddress // each peer's listeners for the hub's services
}

// newWorld prepares a hub with n peers without starting anything.
func newWorld(o Options, n int, services []api.NamedService) (*world, error) {
	dir, err := os.MkdirTemp("", "postern-scale-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for %d gateways: %w", n, err)
	}
	w := &world{Options: o, dir: dir}
	if w.members, err = newMembers(n); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if o.Log != "" {
		if w.log, err = os.Create(filepath.Join(o.Log, fmt.Sprintf("hub-%d-%s.log", n, filepath.Base(dir)))); err != nil {
			return nil, errors.Join(fmt.Errorf("keep what the hub says: %w", err), w.close())
		}
	}
	h := hubOptions{program: o.Gateway, dir: filepath.Join(dir, hubName), peers: w.members, services: services}
	if w.log != nil {
		h.log = w.log
	}
	err = os.Mkdir(h.dir, 0o700)
	if err == nil {
		w.hub, err = newHub(h)
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// up starts hub and peers, waits until all are connected according to the hub, and returns the
// time that this took.
func (w *world) up(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := w.hub.start(); err != nil {
		return 0, err
	}
	if err := w.hub.answers(ctx); err != nil {
		return 0, err
	}
	begun := time.Now()
	var err error
	if w.fleet, err = startFleet(ctx, filepath.Join(w.dir, "peers"), w.members, w.hub, w.local); err != nil {
		return 0, err
	}
	w.say("%d peers started within %v", len(w.members), time.Since(begun).Round(time.Millisecond))
	tick := time.NewTicker(10 * look)
	defer tick.Stop()
	for {
		s, err := w.hub.status(ctx)
		if err != nil {
			return 0, err
		}
		n := connectedIn(s)
		if n == len(w.members) {
			return time.Since(begun), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d peers are connected: %w", n, len(w.members), ctx.Err())
		}
	}
}

func (w *world) say(format string, a ...any) {
	if w.Progress != nil {
		w.Progress(fmt.Sprintf(format, a...))
	}
}

// close stops everything and removes the folder.
func (w *world) close() error {
	var errs []error
	if w.fleet != nil {
		errs = append(errs, w.fleet.close())
	}
	if w.hub != nil {
		errs = append(errs, w.hub.close())
	}
	if w.log != nil {
		errs = append(errs, w.log.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}
