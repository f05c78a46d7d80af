package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tui/screen"
)

// wellFor is how long the screen shows a healthy pair before the fault is caused.
const wellFor = 4 * time.Second

// inProcess provides the screen with a gateway of the lab, which does not exist during a restart.
type inProcess struct{ site *lab.Site }

var errRestarting = errors.New("the gateway is being restarted")

// ofRunning returns the answer of the running gateway.
func ofRunning[T any](p inProcess, ask func(screen.Source) (T, error)) (t T, err error) {
	g := p.site.Running()
	if g == nil {
		return t, errRestarting
	}
	return ask(g)
}

func (p inProcess) Status(ctx context.Context) (api.Status, error) {
	s, err := ofRunning(p, func(g screen.Source) (api.Status, error) { return g.Status(ctx) })
	sortPeers(&s)
	return s, err
}

func (p inProcess) Check(ctx context.Context, r api.CheckRequest) (api.CheckReport, error) {
	return ofRunning(p, func(g screen.Source) (api.CheckReport, error) { return g.Check(ctx, r) })
}

func (p inProcess) Ping(ctx context.Context, name string, r api.PingRequest) (api.PingReply, error) {
	return ofRunning(p, func(g screen.Source) (api.PingReply, error) { return g.Ping(ctx, name, r) })
}

func (p inProcess) Checks(ctx context.Context) (api.CheckReport, error) {
	return ofRunning(p, func(g screen.Source) (api.CheckReport, error) { return g.Checks(ctx) })
}

func (p inProcess) History(ctx context.Context, r api.HistoryRequest) (api.History, error) {
	return ofRunning(p, func(g screen.Source) (api.History, error) { return g.History(ctx, r) })
}

func (p inProcess) ClusterServices(ctx context.Context, peer string) (api.ClusterServices, error) {
	return ofRunning(p, func(g screen.Source) (api.ClusterServices, error) { return g.ClusterServices(ctx, peer) })
}

func (p inProcess) Log(ctx context.Context, after uint64) (api.Log, error) {
	return ofRunning(p, func(g screen.Source) (api.Log, error) { return g.Log(ctx, after) })
}

// training is a fault that an operator watches and fixes.
type training struct {
	lab  *lab.Lab
	name string

	mu    sync.Mutex
	note  string
	made  bool // the fault was caused
	steps []api.LabStep
	// stop ends the current phase, and ended is closed when it has ended.
	stop  context.CancelFunc
	ended chan struct{}
}

// train shows the screen, causes the fault, and fixes it on request. Afterwards it prints what
// happened.
func (a *app) train(ctx context.Context, l *lab.Lab, s lab.Scenario) error {
	t := newTraining(ctx, l, s)
	err := a.labScreen(ctx, l, t.text, screen.Action{
		Name: "fix", Does: "fix the fault, as the fix says", Do: t.fix,
	})
	t.end()
	story := a.labStory(formatTable)
	for _, step := range t.steps {
		story.end(step)
	}
	return err
}

// newTraining starts a training. The fault is caused after a while.
func newTraining(ctx context.Context, l *lab.Lab, s lab.Scenario) *training {
	t := &training{lab: l, name: s.Name, ended: make(chan struct{})}
	t.say("%s.", s.Before())
	ctx, t.stop = context.WithCancel(ctx)
	go func() {
		defer close(t.ended)
		t.harm(ctx)
	}()
	return t
}

// end stops the current phase, and waits for it.
func (t *training) end() {
	t.stop()
	<-t.ended
}

// text returns the note at the top of the screen.
func (t *training) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.note
}

func (t *training) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note = t.name + ": " + fmt.Sprintf(format, args...)
}

// harm causes the fault, and waits until both sides have found it.
func (t *training) harm(ctx context.Context) {
	wait := time.NewTimer(wellFor)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return
	}
	fault := ""
	err := t.lab.Play(ctx, lab.Harm, lab.Progress{End: func(s api.LabStep) {
		if ctx.Err() != nil {
			return // it was cut short
		}
		if s.OK && fault == "" {
			fault = s.Detail
			t.mu.Lock()
			t.made = true
			t.mu.Unlock()
			t.say("%s.\nLook at 4 Checks, r runs them now; n shows the other gateway. :fix fixes it.", fault)
		}
		t.add(s)
	}})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.say("%s. It was not found as it should have been: see 4 Checks. :fix fixes it.", fault)
	default:
		t.say("%s.\nIt is found: see 4 Checks here and at the other gateway (n). :fix fixes it.", fault)
	}
}

// add stores a step, to be printed afterwards.
func (t *training) add(s api.LabStep) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, s)
}

// fix follows the fix, and waits until nothing is wrong any more.
func (t *training) fix(ctx context.Context) (string, error) {
	t.mu.Lock()
	made := t.made
	t.made = false
	t.mu.Unlock()
	if !made {
		return "there is nothing to fix now", nil
	}
	t.end()
	done := ""
	err := t.lab.Play(ctx, lab.Fix, lab.Progress{End: func(s api.LabStep) {
		if ctx.Err() != nil {
			return
		}
		if done == "" {
			done = s.Detail
			t.say("fixed: %s.\nBoth check again until nothing is wrong.", done)
		}
		t.add(s)
	}})
	if err != nil {
		t.say("fixed: %s. Not all is well yet: see 4 Checks.", done)
		return "", err
	}
	t.say("fixed: %s.\nAll is well again. q ends the lab and prints the whole story.", done)
	return "all is well again", nil
}
