package tunnel

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/uapi"
)

var t0 = time.Unix(1_000_000, 0)

// step is one reading of the counters: what grew by how many bytes since the last, and
// whether a handshake completed.
type step struct {
	rx, tx uint64
	shook  bool
}

// run feeds a reading per second to a watch that had a handshake at t0, and gives the
// second in which it first was due, -1 if never.
func run(w *watch, steps []step) (due int) {
	due = -1
	s := uapi.Peer{LastHandshake: t0, RxBytes: 92, TxBytes: 148 + 32, Endpoint: "192.0.2.1:1"}
	w.observe(t0, s)
	for i, st := range steps {
		now := t0.Add(time.Duration(i+1) * time.Second)
		s.RxBytes += st.rx
		s.TxBytes += st.tx
		if st.shook {
			s.LastHandshake = now
		}
		w.observe(now, s)
		if w.due(now) && due < 0 {
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

func TestWatchDialsAfterSilence(t *testing.T) {
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
			if got := run(new(watch), test.steps); got != test.want {
				t.Errorf("dialled in second %d, want %d", got, test.want)
			}
		})
	}
}

func TestWatchCountersMayStartOver(t *testing.T) {
	var w watch
	w.observe(t0, uapi.Peer{RxBytes: 1000, TxBytes: 1000, LastHandshake: t0})
	w.observe(t0.Add(time.Second), uapi.Peer{})
	if !w.heardAt.Equal(t0) || !w.nextTry.IsZero() {
		t.Errorf("counters that fell were taken for traffic: %+v", w)
	}
}

func TestWatchBacksOff(t *testing.T) {
	for name, test := range map[string]struct {
		yield       bool
		least, most float64 // of the pauses 1, 2, 4 … 30 s
	}{
		"first":  {false, 1, 1.25},
		"yields": {true, 1.5, 1.75},
	} {
		t.Run(name, func(t *testing.T) {
			var w watch
			now := t0
			for i, pause := range []float64{1, 2, 4, 8, 16, 30, 30, 30} {
				w.dialled(now, test.yield)
				if got := w.nextTry.Sub(now).Seconds(); got < pause*test.least || got > pause*test.most {
					t.Errorf("pause after dial %d: got %v s, want %v to %v s", i+1, got, pause*test.least, pause*test.most)
				}
				if w.due(w.nextTry.Add(-1)) || !w.due(w.nextTry) {
					t.Error("not due at exactly the time that is shown")
				}
				now = w.nextTry
			}
			if w.attempts != 8 {
				t.Errorf("attempts: got %d, want 8", w.attempts)
			}
			w.observe(now, uapi.Peer{LastHandshake: now, RxBytes: 92})
			if w.attempts != 0 || !w.nextTry.IsZero() {
				t.Errorf("after a handshake: got %d attempts, next %v, want none", w.attempts, w.nextTry)
			}
		})
	}
}

func TestWatchRemembersTheProvenAddress(t *testing.T) {
	var w watch
	w.observe(t0, uapi.Peer{Endpoint: "peer:abc="})
	if w.proven.IsValid() {
		t.Errorf("the stand-in for candidates was taken for an address: %v", w.proven)
	}
	w.observe(t0, uapi.Peer{Endpoint: "[2001:db8::1]:7", RxBytes: initiationSize})
	if got := w.source.String(); got != "[2001:db8::1]:7" {
		t.Errorf("source of an initiation: got %v, want [2001:db8::1]:7", got)
	}
	// Its preshared key may be another: an initiation does not show that.
	if w.proven.IsValid() || !w.heardAt.IsZero() {
		t.Errorf("an initiation alone proved %v and was heard at %v, want neither", w.proven, w.heardAt)
	}
	w.observe(t0, uapi.Peer{Endpoint: "[2001:db8::1]:7", RxBytes: initiationSize + keepaliveSize, LastHandshake: t0})
	w.observe(t0, uapi.Peer{Endpoint: "peer:abc="})
	if got := w.proven.String(); got != "[2001:db8::1]:7" || !w.heardAt.Equal(t0) {
		t.Errorf("after the handshake: got %v heard at %v, want [2001:db8::1]:7 at %v", got, w.heardAt, t0)
	}
}

// The device dates handshakes by the clock on the wall, which may be set at any time.
func TestClockThatIsSetEndsNoSession(t *testing.T) {
	for name, step := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			var w watch
			s := uapi.Peer{LastHandshake: t0.Add(-step), RxBytes: 92, TxBytes: 148} // Before the clock was set.
			w.observe(t0, s)
			if !w.alive(t0.Add(179*time.Second)) || w.alive(t0.Add(180*time.Second)) {
				t.Error("a session does not end after just 180 s")
			}
			s.LastHandshake, s.RxBytes = t0.Add(-2*step), s.RxBytes+92
			now := t0.Add(200 * time.Second)
			w.observe(now, s)
			if !w.heardAt.Equal(now) || !w.alive(now) {
				t.Errorf("another handshake went unnoticed: heard at %v", w.heardAt)
			}
		})
	}
}

func TestDialForcesAnInitiationOnlyWithoutALivingPeer(t *testing.T) {
	heard := func(w *watch) { w.observe(t0, uapi.Peer{LastHandshake: t0, RxBytes: 92}) }
	for name, test := range map[string]struct {
		before func(w *watch)
		after  time.Duration
		want   bool
	}{
		"first dial":                {func(*watch) {}, 0, false},
		"second dial":               {func(w *watch) { w.dialled(t0, false) }, time.Second, true},
		"session":                   {func(w *watch) { w.dialled(t0, false); heard(w) }, 10 * time.Second, false},
		"session that has ended":    {func(w *watch) { w.dialled(t0, false); heard(w) }, 180 * time.Second, true},
		"just heard, however old":   {func(w *watch) { w.dialled(t0, false); heard(w); w.lastHandshake = time.Time{} }, 4 * time.Second, false},
		"heard 5 s ago, no session": {func(w *watch) { w.dialled(t0, false); heard(w); w.lastHandshake = time.Time{} }, 5 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			var w watch
			test.before(&w)
			if got := w.force(t0.Add(test.after)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestWatchCallsAPathSilent(t *testing.T) {
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	for name, test := range map[string]struct {
		before func(w *watch)
		after  float64 // seconds
		want   bool
	}{
		"idle":                       {func(*watch) {}, 100, false},
		"data unanswered for 4.9 s":  {func(w *watch) { w.unansweredSince = t0 }, 4.9, false},
		"data unanswered for 5 s":    {func(w *watch) { w.unansweredSince = t0 }, 5, true},
		"path selected meanwhile":    {func(w *watch) { w.unansweredSince = t0; w.selected(at(3)) }, 7.9, false},
		"path selected 5 s ago":      {func(w *watch) { w.unansweredSince = t0; w.selected(at(3)) }, 8, true},
		"selected and idle":          {func(w *watch) { w.selected(t0) }, 100, false},
		"one dial unanswered":        {func(w *watch) { w.dialled(t0, false) }, 1.3, false},
		"two dials, the second new":  {func(w *watch) { w.dialled(t0, false); w.dialled(at(1.3), false) }, 1.4, false},
		"two dials unanswered":       {func(w *watch) { w.dialled(t0, false); w.dialled(at(1.3), false) }, 4, true},
		"dials before the selection": {func(w *watch) { w.dialled(t0, false); w.dialled(at(1), false); w.selected(at(2)) }, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			var w watch
			test.before(&w)
			if got := w.silent(at(test.after)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if w.silent(at(test.after)) {
				t.Error("it is told twice")
			}
			w.selected(at(test.after))
			w.observe(at(test.after+1), uapi.Peer{LastHandshake: at(test.after + 1)})
			if w.told || w.silent(at(test.after+100)) {
				t.Error("it is silent after an answer")
			}
		})
	}
}

// What has crossed may have been the device's own initiation: only a forced dial makes it send
// another within 5 s.
func TestADialAfterACrossingIsForced(t *testing.T) {
	var w watch
	w.restart(t0.Add(time.Hour))
	w.crossed(t0)
	if at := t0.Add(answerLag); w.due(at.Add(-1)) || !w.due(at) || !w.force(at) {
		t.Errorf("due at %v, forced: %v; want %v after the crossing, forced", w.nextTry.Sub(t0), w.force(at), answerLag)
	}
	w.restart(t0)
	if w.crossed(t0); !w.due(t0) {
		t.Error("a dial that was due sooner was put off")
	}
}
