// Package notices writes Events about what a gateway finds wrong with itself: one about its
// StatefulSet for each check of this gateway that fails, and one when that is over. Problems of a peer are
// reported on its Peer (package peers).
//
// Events contain the verdict: code, cause and fix. One is written when a check fails, or fails
// with another code, but not each time it runs, nor each time that one fails which comes and goes.
package notices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/events"
	"github.com/postern-dev/postern/tunnel/wake"
)

// Reasons of the events.
const (
	ReasonFailed  = "CheckFailed"
	ReasonWarning = "CheckWarning"
	ReasonCleared = "CheckCleared"
)

const (
	// calm is how long to wait after a change for further ones: one fault changes several
	// verdicts.
	calm = time.Second
	// every is the interval of checks without a change notification: verdicts about memory or
	// clocks change by themselves.
	every = 30 * time.Second
)

// Gateway is the watched gateway; *gateway.Gateway implements it.
type Gateway interface {
	// Checks returns the latest results, without running checks.
	Checks(context.Context) (api.CheckReport, error)
}

// Options configure [Notices]. Cluster and Gateway are required.
type Options struct {
	Cluster *kube.Cluster
	Gateway Gateway
	// About is the object of the events: the owner of the gateway's pod. Without it they are
	// about the namespace.
	About metav1.OwnerReference
	// Instance is the gateway's name.
	Instance string
	// Logger may be nil.
	Logger *slog.Logger
}

// Notices writes events while [Notices.Run] runs.
type Notices struct {
	o      Options
	log    *slog.Logger
	about  corev1.ObjectReference
	write  func(corev1.ObjectReference, events.Event) bool
	run    func(context.Context) // of the recorder
	wake   wake.Signal
	failed map[string]api.Check // by code; owned by Run
}

// New returns a Notices. It sends no request yet.
func New(o Options) (*Notices, error) {
	if o.Cluster == nil || o.Gateway == nil {
		return nil, errors.New("notices: Cluster and Gateway are required")
	}
	core, err := o.Cluster.Group(corev1.SchemeGroupVersion, &corev1.Event{})
	if err != nil {
		return nil, fmt.Errorf("notices: %w", err)
	}
	r := events.New(events.Options{Client: core, Namespace: o.Cluster.Namespace(), Instance: o.Instance, Logger: o.Logger})
	return newNotices(o, r.Record, r.Run), nil
}

func newNotices(o Options, write func(corev1.ObjectReference, events.Event) bool, run func(context.Context)) *Notices {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	about := corev1.ObjectReference{APIVersion: o.About.APIVersion, Kind: o.About.Kind, Name: o.About.Name, UID: o.About.UID}
	if o.Cluster != nil {
		about.Namespace = o.Cluster.Namespace()
	}
	if about.UID == "" { // an event must be about something in its own namespace
		about.APIVersion, about.Kind, about.Name = "v1", "Namespace", about.Namespace
	}
	return &Notices{o: o, log: o.Logger, about: about, write: write, run: run, wake: wake.New(), failed: map[string]api.Check{}}
}

// Changed reports that verdicts may have changed. It never blocks.
func (n *Notices) Changed() { n.wake.Set() }

// Run writes events until ctx ends.
func (n *Notices) Run(ctx context.Context) {
	var recorder sync.WaitGroup
	defer recorder.Wait()
	recorder.Go(func() { n.run(ctx) })
	look := time.NewTimer(calm)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
			look.Reset(calm)
			continue
		case <-look.C:
		}
		look.Reset(every)
		report, err := n.o.Gateway.Checks(ctx)
		if err != nil {
			n.log.Debug("failed to read the verdicts", "error", err)
			continue
		}
		n.writeEvents(report)
	}
}

// writeEvents writes what has begun, and what is over. A fault is identified by its code, since the
// check that represents several may change. One that comes and goes stays the fault with whose code it
// began, until that is over for good.
func (n *Notices) writeEvents(report api.CheckReport) {
	now, faulty, unknown := map[string]api.Check{}, map[string]bool{}, map[string]bool{}
	for _, c := range report.Checks {
		switch {
		case c.Peer != "":
		case c.Verdict.Verdict == api.Unknown:
			unknown[c.Name] = true
		case c.Verdict.Verdict == api.Error || c.Verdict.Verdict == api.Warning:
			key := c.Code
			if before := n.told(c.Name); comesAndGoes(c) && before != "" && now[before].Code == "" {
				key = before
			}
			faulty[c.Name] = true
			for i := 2; now[key].Code != ""; i++ {
				key = fmt.Sprintf("%s-%d", c.Code, i)
			}
			now[key] = c
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, told := n.failed[key]; told {
			continue
		}
		c, reason := now[key], ReasonFailed
		if c.Verdict.Verdict == api.Warning {
			reason = ReasonWarning
		}
		if n.write(n.about, events.Event{Type: events.Warning, Reason: reason, Message: fmt.Sprintf("%s %s: %s. To fix it: %s", c.Code, c.Name, c.Cause, c.Fix)}) {
			n.failed[key] = c // otherwise it is retried the next time
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.failed)) {
		c := n.failed[key]
		if _, still := now[key]; still || unknown[c.Name] { // a check that depends on another failure is not over
			continue
		}
		if !comesAndGoes(c) || !faulty[c.Name] { // otherwise it has come again
			n.write(n.about, events.Event{Type: events.Normal, Reason: ReasonCleared, Message: fmt.Sprintf("%s %s is over", c.Code, c.Name)})
		}
		delete(n.failed, key)
	}
}

// told returns the key of the fault that was told of a check; empty if there is none.
func (n *Notices) told(check string) string {
	for _, key := range slices.Sorted(maps.Keys(n.failed)) {
		if n.failed[key].Name == check {
			return key
		}
	}
	return ""
}

func comesAndGoes(c api.Check) bool { return c.Code == string(catalogue.Intermittent) }
