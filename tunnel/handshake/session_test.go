package handshake

import (
	"testing"
	"time"
)

// step is one reading of the counters: by how many bytes they grew since the last, and whether a
// handshake completed.
type step struct {
	rx, tx uint64
	shook  bool
}

// run feeds one reading per second to a machine that had a handshake at t0, and returns the
// second in which it first was due, -1 if never.
func run(m *Machine, steps []step) (due int) {
	due = -1
	r := Reading{LastHandshake: t0, Rx: 92, Tx: 148 + 32, Source: over}
	m.Observe(t0, r)
	for i, st := range steps {
		now := t0.Add(time.Duration(i+1) * time.Second)
		r.Rx += st.rx
		r.Tx += st.tx
		if st.shook {
			r.LastHandshake = now
		}
		m.Observe(now, r)
		if m.Due(now) && due < 0 {
			due = i + 1
		}
	}
	return due
}

func repeat(n int, steps ...step) []step {
	var all []step
	for range n {
		all = append(all, steps...)
	}
	return all
}

func TestSilenceIsFollowedByADial(t *testing.T) {
	for name, test := range map[string]struct {
		steps []step
		want  int
	}{
		"idle":                              {repeat(100, step{}), -1},
		"keepalives only":                   {repeat(100, step{tx: 32}), -1},
		"two keepalives in one second":      {repeat(100, step{tx: 64}), -1},
		"receiving only":                    {repeat(100, step{rx: 1000}), -1},
		"data both ways":                    {repeat(100, step{rx: 100, tx: 1000}), -1},
		"data unanswered":                   {repeat(20, step{tx: 1000}), 6},
		"one packet unanswered":             {append([]step{{tx: 96}}, repeat(20, step{})...), 6},
		"answers every four seconds":        {repeat(20, step{tx: 96}, step{tx: 96}, step{tx: 96}, step{tx: 96, rx: 96}), -1},
		"initiation unanswered":             {append([]step{{tx: 148}}, repeat(20, step{})...), 6},
		"only initiations come back":        {repeat(20, step{rx: 148, tx: 92}), 6},
		"a handshake completes in time":     {[]step{{tx: 1000}, {tx: 148}, {rx: 92, tx: 32, shook: true}, {}, {}, {}, {}}, -1},
		"keepalives come back":              {repeat(20, step{tx: 1000, rx: 32}), -1},
		"silence after an answer":           {append([]step{{tx: 100}, {rx: 32}, {tx: 100}}, repeat(9, step{})...), 8},
		"answers without a living session":  {append(repeat(180, step{}), repeat(10, step{tx: 148, rx: 300})...), 186},
		"counters start over with the peer": {[]step{{tx: 1000, rx: 10}, {}, {}, {}, {}, {}, {}, {}}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := run(new(Machine), test.steps); got != test.want {
				t.Errorf("dialled in second %d, want %d", got, test.want)
			}
		})
	}
}

func TestCountersMayStartOver(t *testing.T) {
	var m Machine
	m.Observe(t0, Reading{Rx: 1000, Tx: 1000, LastHandshake: t0})
	m.Observe(t0.Add(time.Second), Reading{})
	if !m.HeardAt.Equal(t0) || !m.NextTry.IsZero() {
		t.Errorf("counters that fell were taken for traffic: %+v", m)
	}
}

func TestTriesBecomeRare(t *testing.T) {
	for name, test := range map[string]struct {
		yield       bool
		least, most float64 // of the pauses 1, 2, 4 … 30 s
	}{
		"first":  {false, 1, 1.25},
		"yields": {true, 1.5, 1.75},
	} {
		t.Run(name, func(t *testing.T) {
			m := Machine{Config: Config{Yields: test.yield}}
			now := t0
			m.Add(now)
			for i, pause := range []float64{1, 2, 4, 8, 16, 30, 30, 30} {
				if a, _ := m.Poll(now, true, false); !a.Make || a.Force {
					t.Errorf("try %d: got %+v, want an initiation for which nothing is given up", i+1, a)
				}
				if got := m.NextTry.Sub(now).Seconds(); got < pause*test.least || got > pause*test.most {
					t.Errorf("pause after try %d: got %v s, want %v to %v s", i+1, got, pause*test.least, pause*test.most)
				}
				if m.Due(m.NextTry.Add(-1)) || !m.Due(m.NextTry) {
					t.Error("not due at exactly the time that is shown")
				}
				now = m.NextTry
			}
			if m.Attempts != 8 {
				t.Errorf("attempts: got %d, want 8", m.Attempts)
			}
			m.Observe(now, Reading{LastHandshake: now, Rx: 92})
			if m.Attempts != 0 || !m.NextTry.IsZero() {
				t.Errorf("after a handshake: got %d attempts, next %v, want none", m.Attempts, m.NextTry)
			}
		})
	}
}

func TestTheProvenPathIsRemembered(t *testing.T) {
	var m Machine
	m.Observe(t0, Reading{})
	if m.Proven.IsValid() {
		t.Errorf("without an address %v is proven", m.Proven)
	}
	m.Observe(t0, Reading{Source: over, Rx: InitiationSize})
	if m.Source != over {
		t.Errorf("source of an initiation: got %v, want %v", m.Source, over)
	}
	// Its preshared key may differ: an initiation does not show it.
	if m.Proven.IsValid() || !m.HeardAt.IsZero() {
		t.Errorf("an initiation alone proved %v and was heard at %v, want neither", m.Proven, m.HeardAt)
	}
	m.Observe(t0, Reading{Source: over, Rx: InitiationSize + keepaliveSize, LastHandshake: t0})
	m.Observe(t0, Reading{})
	if m.Proven != over || !m.HeardAt.Equal(t0) {
		t.Errorf("after the handshake: got %v heard at %v, want %v at %v", m.Proven, m.HeardAt, over, t0)
	}
}

// The device dates handshakes by the wall clock, which may be set at any time.
func TestClockThatIsSetEndsNoSession(t *testing.T) {
	for name, step := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			var m Machine
			r := Reading{LastHandshake: t0.Add(-step), Rx: 92, Tx: 148} // Before the clock was set.
			m.Observe(t0, r)
			if !m.alive(t0.Add(179*time.Second)) || m.alive(t0.Add(180*time.Second)) {
				t.Error("a session does not end after just 180 s")
			}
			r.LastHandshake, r.Rx = t0.Add(-2*step), r.Rx+92
			now := t0.Add(200 * time.Second)
			m.Observe(now, r)
			if !m.HeardAt.Equal(now) || !m.alive(now) {
				t.Errorf("another handshake went unnoticed: heard at %v", m.HeardAt)
			}
		})
	}
}

// Sessions, however old, are discarded only if there is no other way: the peer may have begun one
// that we do not know yet.
func TestSessionsAreSpared(t *testing.T) {
	for name, test := range map[string]struct {
		before func(m *Machine)
		after  float64
		want   bool
	}{
		"first try":              {func(m *Machine) { m.Add(t0) }, 0, false},
		"second try":             {func(m *Machine) { sent(m, 0) }, 2, false},
		"third try, and another": {func(m *Machine) { sent(m, 0); m.Poll(after(2), true, false) }, 6, false},
		"session that is silent": {func(m *Machine) { m.began(t0, over, false); m.Renew(after(2), 0) }, 10, false},
		"session that has ended": {func(m *Machine) { m.began(t0, over, false); m.NewPath(after(200)) }, 200, false},
		"redial":                 {func(m *Machine) { m.began(t0, over, false); m.Redial(after(10)) }, 10, true},
		"dead session":           {func(m *Machine) { m.began(t0, over, true) }, 1, true},
		"dead session, then a living": {func(m *Machine) {
			m.began(t0, over, true)
			m.began(t0, over, false)
			m.Renew(after(2), 0)
		}, 10, false},
		"another preshared key":          {func(m *Machine) { sent(m, 0); m.Changed(after(1)) }, 1, true},
		"another key while it is living": {func(m *Machine) { m.began(t0, over, false); m.Changed(after(1)); m.Renew(after(2), 0) }, 10, false},
		"cookie":                         {func(m *Machine) { sent(m, 0); m.cookieDue(t0) }, 2, true},
		"cookie while there is a session": {func(m *Machine) {
			m.began(t0, over, false)
			sent(m, 120)
			m.cookieDue(after(120))
			m.Renew(after(122), 0)
		}, 130, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := Machine{Config: Config{Managed: true}}
			test.before(&m)
			a, _ := m.Poll(after(test.after), true, false)
			if a.Force != test.want || a.Send == nil && !a.Make {
				t.Errorf("got %+v, want an initiation, and sessions given up: %v", a, test.want)
			}
		})
	}
}

func TestAPathIsCalledSilent(t *testing.T) {
	tried := func(m *Machine, at float64) { sent(m, at) }
	again := func(m *Machine, at float64) { m.Poll(after(at), true, true) }
	for name, test := range map[string]struct {
		before func(m *Machine)
		after  float64 // seconds
		want   bool
	}{
		"idle":                       {func(*Machine) {}, 100, false},
		"data unanswered for 4.9 s":  {func(m *Machine) { m.silence.since = t0 }, 4.9, false},
		"data unanswered for 5 s":    {func(m *Machine) { m.silence.since = t0 }, 5, true},
		"path selected meanwhile":    {func(m *Machine) { m.silence.since = t0; m.Selected(after(3)) }, 7.9, false},
		"path selected 5 s ago":      {func(m *Machine) { m.silence.since = t0; m.Selected(after(3)) }, 8, true},
		"selected and idle":          {func(m *Machine) { m.Selected(t0) }, 100, false},
		"one try unanswered":         {func(m *Machine) { tried(m, 0) }, 1.3, false},
		"two tries, the second new":  {func(m *Machine) { tried(m, 0); again(m, 1.3) }, 1.4, false},
		"two tries unanswered":       {func(m *Machine) { tried(m, 0); again(m, 1.3) }, 4, true},
		"tries before the selection": {func(m *Machine) { tried(m, 0); again(m, 1.3); m.Selected(after(2)) }, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			var m Machine
			test.before(&m)
			if got := m.silent(after(test.after)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if m.silent(after(test.after)) {
				t.Error("it is told twice")
			}
			m.Selected(after(test.after))
			m.Observe(after(test.after+1), Reading{LastHandshake: after(test.after + 1)})
			if m.silence.reported != reportedNothing || m.silent(after(test.after+100)) {
				t.Error("it is silent after an answer")
			}
		})
	}
}

// A path is reported as quiet before it is reported as silent, once until the peer answers.
func TestAPathIsCalledQuiet(t *testing.T) {
	var m Machine
	m.Observe(t0, Reading{LastHandshake: t0})
	m.Observe(after(1), Reading{LastHandshake: t0, Tx: 1000})
	for _, step := range []struct {
		at            float64
		quiet, silent bool
	}{{2.9, false, false}, {3, true, false}, {4, false, false}, {6, false, true}, {7, false, false}} {
		if a, _ := m.Poll(after(step.at), true, true); a.Quiet != step.quiet || a.Silent != step.silent {
			t.Errorf("after %v s: quiet %v, silent %v; want %v and %v", step.at, a.Quiet, a.Silent, step.quiet, step.silent)
		}
	}
}
