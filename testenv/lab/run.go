package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// defaultStepLimit bounds each step by default: a failed punch is repeated after 38 s, and a
// machine may be busy.
const defaultStepLimit = 2 * time.Minute

func (l *Lab) stepLimit() time.Duration { return cmp.Or(l.opts.StepLimit, defaultStepLimit) }

// look is the polling interval of steps.
const look = 20 * time.Millisecond

// step is an action or a wait of a scenario.
type step struct {
	name string
	// doing describes what is in progress.
	doing string
	// do returns the result, in a sentence.
	do func(context.Context) (string, error)
}

// Phase is a part of a scenario.
type Phase int

// The phases, in order. Scenarios without a fault only have the first.
const (
	Prepare Phase = iota // until the gateways work as intended
	Harm                 // the fault is caused and found
	Fix                  // it is fixed and gone
)

// Progress is called at the beginning and end of each step; either function may be nil.
type Progress struct {
	Begin func(name, doing string)
	End   func(api.LabStep)
}

// Run plays the whole scenario. It stops at the first step that fails and returns its error.
func (l *Lab) Run(ctx context.Context, p Progress) error {
	for _, phase := range []Phase{Prepare, Harm, Fix} {
		if err := l.Play(ctx, phase, p); err != nil {
			return err
		}
	}
	return nil
}

// Play plays one phase, after those before it.
func (l *Lab) Play(ctx context.Context, phase Phase, p Progress) error {
	for _, s := range l.steps(phase) {
		if err := s.play(ctx, p, l.stepLimit()); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) steps(phase Phase) []step {
	switch {
	case l.scenario.fault != nil:
		return l.scenario.fault.steps(l, phase)
	case phase == Prepare:
		return l.scenario.play(l)
	}
	return nil
}

func (s step) play(ctx context.Context, p Progress, limit time.Duration) error {
	if p.Begin != nil {
		p.Begin(s.name, s.doing)
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	detail, err := s.do(ctx)
	if err != nil {
		detail = err.Error()
	}
	if p.End != nil {
		p.End(api.LabStep{Name: s.name, OK: err == nil, Seconds: time.Since(start).Seconds(), Detail: detail})
	}
	if err != nil {
		return fmt.Errorf("step %s: %w", s.name, err)
	}
	return nil
}

// Statuses returns those of cloud and edge.
func (l *Lab) Statuses(ctx context.Context) ([]api.Status, error) {
	var out []api.Status
	for _, s := range []*Site{l.Cloud, l.Edge} {
		st, err := s.Gateway.Status(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

// poll calls missing until it returns "", or fails, or ctx ends. The error then says what was
// missing.
func poll(ctx context.Context, missing func() (string, error)) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		m, err := missing()
		if m == "" || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				m = fmt.Sprintf("waited in vain: %s", m)
			}
			return errors.New(m)
		}
	}
}

// awaitBoth waits until every peer of both gateways satisfies ready, which otherwise says what is
// missing.
func (l *Lab) awaitBoth(ctx context.Context, ready func(api.PeerStatus) string) (all []api.Status, err error) {
	err = poll(ctx, func() (string, error) {
		if all, err = l.Statuses(ctx); err != nil {
			return "", err
		}
		for _, s := range all {
			if len(s.Peers) == 0 {
				return s.Gateway.Name + " has no peer", nil
			}
			for _, p := range s.Peers {
				if m := ready(p); m != "" {
					return fmt.Sprintf("%s → %s: %s", s.Gateway.Name, p.Name, m), nil
				}
			}
		}
		return "", nil
	})
	return all, err
}
