package check

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// A peer that answers echoes and no probes is reported only if probes that were sent between two
// answered echoes are lost.
func TestOnlyProbesAreDropped(t *testing.T) {
	for _, c := range []struct {
		name string
		path func(*PathFacts, *Facts)
	}{
		{name: "never answered, proven by a handshake"},
		{name: "answered before, and given up", path: func(p *PathFacts, f *Facts) {
			p.Kind, p.Remote, f.NoPath, f.PathLost = api.PathNone, "", "the last path failed", p.Since
		}},
	} {
		for _, more := range []struct {
			name string
			age  time.Duration
			seen func(*PathFacts) // once the paths were probed again
			code catalogue.Code
		}{
			{name: "and still not", age: time.Minute, code: catalogue.ProbesDropped},
			{name: "none may be sent for now", age: time.Minute, seen: func(p *PathFacts) { p.Asked = time.Time{} }},
			{name: "a path that was only just found", age: givenUp - 3*time.Second},
			{name: "answered when asked again", age: time.Minute, seen: func(p *PathFacts) { p.Answered = time.Now() }},
			{name: "refused: the peer has heard a later start", age: time.Minute, seen: func(p *PathFacts) { p.Refused = time.Now() }},
		} {
			t.Run(c.name+", "+more.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := facts()
					f.LastHandshake, f.Endpoints = time.Now(), []string{publicCloud}
					f.Path = PathFacts{Kind: api.PathDirect, Remote: publicCloud, Since: time.Now().Add(-more.age)}
					if c.path != nil {
						c.path(&f.Path, &f)
					}
					o, asked := newOverlay(t), false
					o.pings(func() error { return nil })
					got := gateway(t.Context(), o.Ping, f, asking{
						again: func() Facts {
							now := f
							if asked {
								now.Path.Asked = time.Now()
							}
							if asked && more.seen != nil {
								more.seen(&now.Path)
							}
							return now
						},
						doubt: func() {}, reprobe: func() { asked = true },
					})
					if got.Code != more.code || more.code != "" && (got.Outcome != api.Warning || !strings.Contains(got.Verdict().Cause, "no probe of its path")) {
						t.Errorf("got %s %s: %s", got.Outcome, got.Code, got.Verdict().Cause)
					}
				})
			})
		}
	}
}

// A copy of a peer with its key is the graver fault, and may be why probes are not answered.
func TestACopyIsToldBeforeProbesThatAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, now := facts(), time.Now()
		f.LastHandshake, f.Endpoints = now, []string{publicCloud}
		f.Path = PathFacts{Kind: api.PathDirect, Remote: publicCloud, Since: now.Add(-time.Minute), Asked: now.Add(time.Minute)}
		o := newOverlay(t)
		o.pings(func() error { return nil })
		checkVerdict(t, Gateway(t.Context(), o.Ping, f), api.Warning, catalogue.ProbesDropped, StageProbe)
		f.Boots, f.BootsAt = []uint64{7, 8, 7}, []time.Time{now, now, now}
		checkVerdict(t, Gateway(t.Context(), o.Ping, f), api.Error, catalogue.DuplicateKey, StageHandshake)
	})
}
