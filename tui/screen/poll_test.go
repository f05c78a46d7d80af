package screen

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// distant is a gateway behind a slow link: each answer takes nearly as long as is waited for it.
type distant struct{ *fake }

const distance = pollLimit * 9 / 10

func cross(ctx context.Context) error {
	select {
	case <-time.After(distance):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d distant) Status(ctx context.Context) (s api.Status, err error) {
	if err = cross(ctx); err == nil {
		s, err = d.fake.Status(ctx)
	}
	return s, err
}

func (d distant) Log(ctx context.Context, after uint64) (l api.Log, err error) {
	if err = cross(ctx); err == nil {
		l, err = d.fake.Log(ctx, after)
	}
	return l, err
}

func (d distant) Checks(ctx context.Context) (r api.CheckReport, err error) {
	if err = cross(ctx); err == nil {
		r, err = d.fake.Checks(ctx)
	}
	return r, err
}

// Each answer counts, although all of a snapshot take longer than one request may.
func TestASlowLinkBringsTheWholeSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := newTasks(t.Context())
		defer tasks.close()
		m := newModel(Options{Source: distant{many(3)}}, tasks)
		begun := time.Now()
		asked := m.ask(m.now())()
		msg, ok := asked.(polledMsg)
		if !ok {
			t.Fatalf("got %T", asked)
		}
		if msg.err != nil || msg.logErr != nil || msg.reportErr != nil {
			t.Errorf("status: %v, log: %v, checks: %v", msg.err, msg.logErr, msg.reportErr)
		}
		if want := time.Since(begun) - distance; msg.age.Round(time.Second) != want.Round(time.Second) {
			t.Errorf("the status is %s old, want %s", msg.age, want)
		}
		if m.polled(msg); m.data.lost != nil || len(m.data.status.Peers) != 3 || len(m.data.report.Checks) == 0 {
			t.Errorf("the screen has %d peers and %d checks, lost: %v", len(m.data.status.Peers), len(m.data.report.Checks), m.data.lost)
		}
	})
}
