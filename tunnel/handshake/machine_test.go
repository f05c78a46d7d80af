package handshake

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

var (
	t0   = time.Unix(1_000_000, 0)
	over = peer.Direct(netip.MustParseAddrPort("192.0.2.1:1"))
)

// after returns a time, in seconds after t0.
func after(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

// in brings a managed machine into each state by t0.
var in = map[State]func(m *Machine){
	Down:     func(*Machine) {},
	Due:      func(m *Machine) { m.Add(t0) },
	Forced:   func(m *Machine) { m.Redial(t0) },
	Offered:  func(m *Machine) { sent(m, 0) },
	Answered: func(m *Machine) { sent(m, 0); m.answered(t0) },
	Up:       func(m *Machine) { m.began(t0, over, false) },
}

// sent makes the machine send an initiation of the device.
func sent(m *Machine, at float64) {
	m.made(after(at), initiation(1), true)
	m.Poll(after(at), true, false)
}

func initiation(n byte) []byte { return []byte{1, n} }

func TestTransitions(t *testing.T) {
	poll := func(at float64, reachable bool) func(m *Machine) Actions {
		return func(m *Machine) Actions { a, _ := m.Poll(after(at), reachable, true); return a }
	}
	event := func(f func(m *Machine)) func(m *Machine) Actions {
		return func(m *Machine) Actions { f(m); return Actions{} }
	}
	made := func(reachable bool) func(m *Machine) Actions {
		return func(m *Machine) Actions {
			m.made(after(0.1), initiation(2), reachable)
			a, _ := m.Poll(after(0.1), reachable, true)
			return a
		}
	}
	read := func(at float64, r Reading) func(m *Machine) Actions {
		return event(func(m *Machine) { m.Observe(after(at), r) })
	}
	send := func(n byte) Actions { return Actions{Send: initiation(n)} }
	force, ask := Actions{Make: true, Force: true}, Actions{Make: true}
	for _, c := range []struct {
		from State
		what string
		do   func(m *Machine) Actions
		to   State
		want Actions
		next float64 // of the next try, in seconds, plus up to half; 0 for none
	}{
		{Down, "a path is found", event(func(m *Machine) { m.NewPath(t0) }), Due, Actions{}, 0.001},
		{Down, "the peer is added", event(func(m *Machine) { m.Add(t0) }), Due, Actions{}, 0.001},
		{Down, "the device makes one, and there is a way", made(true), Offered, send(2), 1.1},
		{Down, "the device makes one, and there is no way", made(false), Down, Actions{}, 0},
		{Down, "the device answers the peer's", event(func(m *Machine) { m.answered(t0) }), Answered, Actions{}, 0},
		{Down, "a session begins", event(func(m *Machine) { m.began(t0, over, false) }), Up, Actions{}, 0},

		{Due, "its time comes", poll(0.1, true), Offered, ask, 1.1},
		{Due, "there is no way", poll(0.1, false), Down, Actions{}, 0},
		{Due, "the device makes one", made(true), Offered, send(2), 1.1},
		{Due, "the device answers the peer's", event(func(m *Machine) { m.answered(t0) }), Answered, Actions{}, 1},
		{Due, "a session begins", event(func(m *Machine) { m.began(t0, over, false) }), Up, Actions{}, 0},

		{Forced, "its time comes", poll(0.1, true), Offered, force, 1.1},
		{Forced, "there is no way", poll(0.1, false), Down, Actions{}, 0},
		{Forced, "a path is found", event(func(m *Machine) { m.NewPath(t0) }), Forced, Actions{}, 0.001},
		{Forced, "a session begins", event(func(m *Machine) { m.began(t0, over, false) }), Up, Actions{}, 0},

		{Offered, "no answer comes", poll(1.3, true), Offered, send(1), 3.3},
		{Offered, "the way is gone", poll(1.3, false), Down, Actions{}, 0},
		{Offered, "a session begins", event(func(m *Machine) { m.began(t0, over, false) }), Up, Actions{}, 0},
		{Offered, "a session begins dead", event(func(m *Machine) { m.began(t0, over, true) }), Forced, Actions{}, 0.25},
		{Offered, "the device makes another", made(true), Offered, send(2), 1.1},
		{Offered, "the device answers the peer's", event(func(m *Machine) { m.answered(t0) }), Answered, Actions{}, 1},
		{Offered, "a cookie is due", event(func(m *Machine) { m.cookieDue(t0) }), Forced, Actions{}, 1},
		{Offered, "a path is found", event(func(m *Machine) { m.NewPath(after(0.1)) }), Due, Actions{}, 0.25},
		{Offered, "it is redialled", event(func(m *Machine) { m.Redial(after(0.1)) }), Forced, Actions{}, 0.1},
		{Offered, "a handshake shows in a reading", read(0.1, Reading{Rx: 92, LastHandshake: t0}), Up, Actions{}, 0},

		{Answered, "no data comes", poll(1.3, true), Offered, force, 3.3},
		{Answered, "its own response comes", event(func(m *Machine) { m.responded(after(0.1)) }), Forced, Actions{}, 0.15},
		{Answered, "its own response comes late", event(func(m *Machine) { m.responded(after(0.3)) }), Answered, Actions{}, 1},
		{Answered, "data comes", event(func(m *Machine) { m.began(after(0.1), over, false) }), Up, Actions{}, 0},
		{Answered, "it is redialled", event(func(m *Machine) { m.Redial(after(0.1)) }), Forced, Actions{}, 1},

		{Up, "nothing comes", poll(100, true), Up, Actions{}, 0},
		{Up, "its keys are over", poll(180, true), Down, Actions{}, 0},
		{Up, "the device renews it", made(true), Up, send(2), 0},
		{Up, "the device answers the peer's", event(func(m *Machine) { m.answered(t0) }), Up, Actions{}, 0},
		{Up, "a path is found", event(func(m *Machine) { m.NewPath(t0) }), Up, Actions{}, 0},
		{Up, "it is to be renewed", event(func(m *Machine) { m.Renew(after(9), time.Second) }), Due, Actions{}, 10},
		{Up, "it was renewed just now", event(func(m *Machine) { m.Renew(after(0.9), time.Second) }), Up, Actions{}, 0},
		{Up, "it is redialled", event(func(m *Machine) { m.Redial(t0) }), Forced, Actions{}, 0.001},
		{Up, "data is not answered", event(func(m *Machine) {
			m.Observe(after(1), Reading{Tx: 1000})
			m.Observe(after(6), Reading{Tx: 1000})
		}), Due, Actions{}, 6},
	} {
		m := &Machine{Config: Config{Managed: true}}
		in[c.from](m)
		if m.State() != c.from {
			t.Fatalf("the machine is %v, want %v", m.State(), c.from)
		}
		got := c.do(m)
		if m.State() != c.to {
			t.Errorf("%v, %s: it is %v, want %v", c.from, c.what, m.State(), c.to)
		}
		if !bytes.Equal(got.Send, c.want.Send) || got.Make != c.want.Make || got.Force != c.want.Force {
			t.Errorf("%v, %s: got %+v, want %+v", c.from, c.what, got, c.want)
		}
		next := m.NextTry.Sub(t0).Seconds()
		if m.NextTry.IsZero() != (c.next == 0) || c.next > 0.01 && (next < c.next || next > 1.5*c.next) || c.next == 0.001 && next != 0 {
			t.Errorf("%v, %s: the next try is at %v, want %v", c.from, c.what, next, c.next)
		}
	}
}

// An initiation is kept while there is no path, and sent on the first that appears.
func TestInitiationWaitsForAWay(t *testing.T) {
	for name, c := range map[string]struct {
		found float64
		want  Actions
	}{
		"soon":                         {1, Actions{Send: initiation(1)}},
		"when the device makes others": {5, Actions{Make: true}},
	} {
		m := Machine{Config: Config{Managed: true}}
		m.made(t0, initiation(1), false)
		if a, _ := m.Poll(t0, false, false); a.Send != nil {
			t.Errorf("%s: it is sent to nowhere", name)
		}
		m.NewPath(after(c.found))
		if got, _ := m.Poll(after(c.found), true, false); !bytes.Equal(got.Send, c.want.Send) || got.Make != c.want.Make || got.Force {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// Initiations that have crossed undo each other. Both sides notice, and one dials again first.
func TestBothUndone(t *testing.T) {
	for name, c := range map[string]struct {
		responseFirst bool
		answeredAt    float64
		yields        bool
		want          State
		next          float64
	}{
		"we answer first":                        {false, 0.01, false, Forced, 0.07},
		"the peer's answer is there first":       {true, 0.02, false, Forced, 0.07},
		"we answer first, and yield":             {false, 0.01, true, Forced, 1.5},
		"the peer's answer is first, we yield":   {true, 0.02, true, Forced, 1.5},
		"an answer that was refused of long ago": {true, 0.5, false, Answered, 1.5},
	} {
		m := Machine{Config: Config{Managed: true, Yields: c.yields}}
		sent(&m, 0)
		if c.responseFirst {
			m.responded(after(0.01))
		}
		m.answered(after(c.answeredAt))
		if !c.responseFirst {
			m.responded(after(0.02))
			m.responded(after(0.03)) // from someone who has seen it
		}
		if got := m.NextTry.Sub(t0).Seconds(); m.State() != c.want || got < c.next || got > c.next+0.4 {
			t.Errorf("%s: %v, next try at %v s; want %v at %v s", name, m.State(), got, c.want, c.next)
		}
	}
}

// arrival returns an initiation of the peer; those with the same n are copies.
func arrival(n byte) Initiation {
	m := make([]byte, InitiationSize)
	m[0], m[8] = 1, n
	return Initiation{Message: m}
}

// An initiation that arrives while ours is on its way is held by one side; after a response, by
// both.
func TestHeldInitiations(t *testing.T) {
	for name, c := range map[string]struct {
		before func(m *Machine)
		yields bool
		at     float64
		until  float64 // 0: it is not held
	}{
		"none of ours":              {func(*Machine) {}, false, 0, 0},
		"ours is on its way":        {func(m *Machine) { sent(m, 0) }, false, 0.2, 0.25},
		"we yield":                  {func(m *Machine) { sent(m, 0) }, true, 0.2, 0},
		"ours is old":               {func(m *Machine) { sent(m, 0) }, false, 0.25, 0},
		"ours was not sent":         {func(m *Machine) { m.made(t0, initiation(1), false) }, false, 0.2, 0},
		"ours was answered":         {func(m *Machine) { sent(m, 0); m.responded(after(0.2)) }, false, 0.3, 0.45},
		"ours was answered, yields": {func(m *Machine) { sent(m, 0); m.responded(after(0.2)) }, true, 0.3, 0.45},
		"ours was taken":            {func(m *Machine) { sent(m, 0); m.began(after(0.1), over, false) }, false, 0.1, 0},
		"ours is forgotten":         {func(m *Machine) { sent(m, 0); m.answered(t0) }, false, 0.1, 0},
	} {
		m := Machine{Config: Config{Managed: true, Yields: c.yields}}
		c.before(&m)
		given := func(at float64) int { a, _ := m.Poll(after(at), true, false); return len(a.Give) }
		m.arrived(after(c.at), arrival(1))
		if c.until == 0 {
			if given(c.at) != 1 {
				t.Errorf("%s: it is held", name)
			}
			continue
		}
		m.arrived(after(c.at), arrival(1)) // a copy
		if given(c.until-0.01) != 0 || given(c.until) != 2 || given(c.until) != 0 {
			t.Errorf("%s: not given at %v s, and then once", name, c.until)
		}
	}
}

// An initiation that crossed ours is dropped when ours is accepted. One that arrived after the
// answer to ours is delivered.
func TestHeldInitiationsAfterAnAnswer(t *testing.T) {
	var m Machine
	sent(&m, 0)
	m.arrived(t0, arrival(1))
	m.responded(t0)
	m.arrived(t0, arrival(2))
	m.began(t0, over, false)
	if a, _ := m.Poll(t0, true, false); len(a.Give) != 1 || !a.Give[0].isCopyOf(arrival(2)) {
		t.Errorf("got %+v, want the one that came after the answer", a.Give)
	}
	if a, next := m.Poll(after(1), true, false); len(a.Give) > 0 || !next.IsZero() {
		t.Errorf("got %+v later, want nothing", a.Give)
	}
}

// Someone who forges the source of a path can fill the list of held initiations. The peer's own
// must not be lost.
func TestForgedInitiationsDoNotCrowdOutTheOneThatCrosses(t *testing.T) {
	var m Machine
	sent(&m, 0)
	for i := range byte(mostHeld) {
		m.arrived(t0, arrival(i))
	}
	m.arrived(t0, arrival(0)) // a copy of a held one takes no room
	m.arrived(t0, arrival(mostHeld))
	if a, _ := m.Poll(t0, true, false); len(a.Give) != 1 || !a.Give[0].isCopyOf(arrival(mostHeld)) {
		t.Errorf("got %+v, want what there was no room for", a.Give)
	}
	if a, _ := m.Poll(after(0.25), true, false); len(a.Give) != mostHeld {
		t.Errorf("%d are given later, want %d", len(a.Give), mostHeld)
	}
}

// FuzzMachine feeds a machine arbitrary events in any order, and checks what its peers and the
// network rely on.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, true, false)
	f.Add(bytes.Repeat([]byte{2, 200}, 40), true, true)
	f.Add(bytes.Repeat([]byte{1, 14, 3, 30, 8}, 30), false, true)
	for seed := range uint64(20) {
		r, script := rand.New(rand.NewPCG(seed, seed)), make([]byte, 400)
		for i := range script {
			script[i] = byte(r.IntN(256))
		}
		f.Add(script, seed%2 == 0, seed%3 == 0)
	}
	f.Fuzz(func(t *testing.T, script []byte, managed, yields bool) {
		d := &fakeDevice{t: t, m: Machine{Config: Config{Managed: managed, Yields: yields}}, now: t0}
		for _, b := range script {
			d.step(b)
		}
		d.rest()
	})
}

// fakeDevice behaves towards a machine as wireguard-go does.
type fakeDevice struct {
	t   *testing.T
	m   Machine
	now time.Time

	made       byte
	forced     bool      // the last one was
	lastMade   time.Time // or answered
	sent       []byte
	madeAt     time.Time
	sentAt     time.Time // when the one sent last was made
	answeredAt time.Time
	reachable  bool
	rx, tx     uint64
	shook      time.Time
	arrived    []time.Time // initiations that may be held
	silent     int         // silence reports since the last answer
}

// step performs one event, up to some seconds after the last.
func (d *fakeDevice) step(b byte) {
	d.now = d.now.Add(time.Duration(b>>4) * time.Duration(b>>4) * 10 * time.Millisecond)
	switch b % 16 {
	case 0:
		d.reachable = true
		d.m.NewPath(d.now)
	case 1:
		d.reachable = !d.reachable
	case 2:
		d.make(false)
	case 3:
		d.lastMade, d.answeredAt = d.now, d.now
		d.m.answered(d.now)
	case 4:
		d.m.responded(d.now)
	case 5:
		d.m.cookieDue(d.now)
	case 6, 7:
		if d.m.Managed {
			d.m.began(d.now, over, b%16 == 7 && b > 128)
			d.arrived = d.arrived[:0] // those that crossed ours are dropped
		}
	case 8:
		d.tx += 1000
		d.observe()
	case 9:
		d.rx += 1000
		d.observe()
	case 10:
		d.shook = d.now
		d.rx += 92
		d.observe()
	case 11:
		d.m.arrived(d.now, arrival(b>>4))
		d.arrived = append(d.arrived, d.now)
	case 12:
		d.m.Renew(d.now, time.Second)
	case 13:
		d.m.Redial(d.now)
	case 14:
		d.m.Selected(d.now)
	case 15:
		d.m.Changed(d.now)
	}
	d.poll()
}

func (d *fakeDevice) observe() {
	d.m.Observe(d.now, Reading{Rx: d.rx, Tx: d.tx, LastHandshake: d.shook})
	if d.m.HeardAt.Equal(d.now) {
		d.silent = 0
	}
}

// make has the device make an initiation, if it would.
func (d *fakeDevice) make(force bool) {
	if !force && !d.lastMade.IsZero() && d.now.Sub(d.lastMade) < Rekey {
		return
	}
	d.made++
	d.lastMade, d.madeAt = d.now, d.now
	d.forced = force
	d.m.made(d.now, initiation(d.made), d.reachable)
	d.poll()
}

// send checks that the message sent is the last that the device made. So no two are sent within 5
// s, unless sessions were discarded for the second. It must not be older than that either.
func (d *fakeDevice) send(m []byte) {
	switch {
	case !d.reachable:
		d.t.Fatal("an initiation is sent to nowhere")
	case m[1] != d.made:
		d.t.Fatalf("initiation %d is sent, and the device has made %d", m[1], d.made)
	case d.now.Sub(d.madeAt) >= Rekey:
		d.t.Fatalf("an initiation of %v ago is sent", d.now.Sub(d.madeAt))
	case d.answeredAt.After(d.madeAt):
		d.t.Fatal("an initiation is sent that the device has forgotten")
	case !bytes.Equal(m, d.sent) && !d.forced && !d.sentAt.IsZero() && d.madeAt.Sub(d.sentAt) < Rekey:
		d.t.Fatalf("another initiation is sent %v after the last", d.madeAt.Sub(d.sentAt))
	case !bytes.Equal(m, d.sent):
		d.sent, d.sentAt = m, d.madeAt
	}
}

func (d *fakeDevice) poll() (next time.Time) {
	before := d.m.State()
	a, next := d.m.Poll(d.now, d.reachable, true)
	if len(d.m.held) == 0 {
		d.arrived = d.arrived[:0]
	}
	switch {
	case a.Send != nil && a.Make:
		d.t.Fatal("an initiation is sent and another made")
	case a.Force && before != Forced && before != Answered:
		d.t.Fatalf("sessions are given up while %v", before)
	case a.Send != nil && before == Forced && !d.madeAt.Equal(d.now):
		d.t.Fatal("what is to be given up is repeated")
	case a.Send != nil:
		d.send(a.Send)
	case a.Make:
		d.make(a.Force)
	}
	if a.Silent {
		d.silent++
	}
	if !next.IsZero() && !next.After(d.now) {
		d.t.Fatalf("it wants to be asked again %v ago", d.now.Sub(next))
	}
	switch s := d.m.State(); {
	case (s == Due || s == Forced || s == Offered) && d.m.NextTry.IsZero():
		d.t.Fatalf("it is %v, and nothing is planned", s)
	case (s == Down || s == Up) && !d.m.NextTry.IsZero():
		d.t.Fatalf("it is %v, and a try is planned", s)
	case len(d.arrived) > 0 && d.now.Sub(d.arrived[0]) > 2*crossingTime:
		d.t.Fatalf("an initiation is held for %v", d.now.Sub(d.arrived[0]))
	case len(d.m.held) > mostHeld:
		d.t.Fatalf("%d initiations are held", len(d.m.held))
	}
	return next
}

// rest checks that a machine becomes quiet: at once with a peer that answers, with growing
// intervals with one that never does, and completely without a path.
func (d *fakeDevice) rest() {
	d.reachable = true
	tries, until := 0, d.now.Add(10*time.Minute)
	for next := d.poll(); !next.IsZero() && next.Before(until); next = d.poll() {
		d.now = next
		tries++
	}
	if tries > 10+15 {
		d.t.Errorf("%d tries in 10 minutes, want one every 30 s", tries)
	}
	d.m.Redial(d.now)
	d.poll()
	d.m.began(d.now, over, false)
	if next := d.poll(); !next.IsZero() || d.m.State() != Up {
		d.t.Errorf("after an answer it is %v, and wants something at %v", d.m.State(), next)
	}
	d.reachable, d.now = false, d.now.Add(time.Hour)
	d.poll()
	if next := d.poll(); !next.IsZero() || d.m.State() != Down {
		d.t.Errorf("without a way it is %v, and wants something at %v", d.m.State(), next)
	}
}
