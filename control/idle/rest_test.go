package idle

import (
	"testing"
	"testing/synctest"
	"time"
)

// fakeMemory records calls. The test decides when memory grows again.
type fakeMemory struct {
	held            uint64
	percent         int
	given, thorough int
}

func (m *fakeMemory) Held() uint64 { return m.held }

func (m *fakeMemory) SetPercent(percent int) int {
	before := m.percent
	m.percent = percent
	return before
}

func (m *fakeMemory) GiveBack(thoroughly bool) {
	m.given++
	if thoroughly {
		m.thorough++
	}
	m.held = 60 << 20
}

func TestAGatewayThatRestsGivesMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeMemory{held: 500 << 20, percent: 100}
		r := &Rest{Memory: m}
		var bytes uint64
		turns := func(n int, each uint64) {
			for range n {
				bytes += each
				r.Turn(time.Now(), bytes)
				synctest.Wait()
				time.Sleep(time.Second)
			}
		}
		want := func(when string, given, thorough, percent int) {
			t.Helper()
			if m.given != given || m.thorough != thorough || m.percent != percent {
				t.Errorf("%s: gave back %d times, %d of them thoroughly, at %d %%; want %d, %d, %d %%",
					when, m.given, m.thorough, m.percent, given, thorough, percent)
			}
		}
		turns(1, 0)
		want("at the start", 0, 0, calmPercent)
		turns(120, 10<<20)
		want("while busy", 0, 0, 100)
		turns(50, 64<<10)
		want("not yet at rest", 0, 0, calmPercent)
		turns(15, 64<<10)
		want("at rest", 1, 1, calmPercent)
		turns(300, 64<<10)
		want("with nothing more to give", 1, 1, calmPercent)
		m.held += 3 << 20
		turns(60, 0)
		want("with little more", 1, 1, calmPercent)
		m.held += 2 << 20
		turns(1, 0)
		want("with somewhat more", 2, 1, calmPercent)
		m.held += 20 << 20
		turns(50, 0)
		want("with more garbage", 2, 1, calmPercent)
		turns(1, 10<<20)
		want("busy again", 2, 1, 100)
		m.held += 300 << 20
		turns(30, 0)
		want("not at rest again", 2, 1, calmPercent)
		turns(35, 0)
		want("at rest again", 3, 2, calmPercent)
		r.Close()
		want("at the end", 3, 2, 100)
	})
}

// A lower GOGC, or off, is kept.
func TestAStricterGOGCStays(t *testing.T) {
	for _, percent := range []int{-1, 10} {
		m := &fakeMemory{percent: percent}
		r := &Rest{Memory: m}
		start := time.Now()
		for i := range 100 {
			r.Turn(start.Add(time.Duration(i)*time.Second), 0)
		}
		if m.percent != percent {
			t.Errorf("at rest GOGC is %d, want %d as before", m.percent, percent)
		}
		r.Close()
		if m.percent != percent {
			t.Errorf("afterwards GOGC is %d, want %d as before", m.percent, percent)
		}
	}
}

// Process can measure and return this process's memory.
func TestTheProcessHasMemory(t *testing.T) {
	var m Process
	m.GiveBack(true)
	if held := m.Held(); held < 100<<10 || held > 64<<30 {
		t.Errorf("the process holds %d bytes", held)
	}
}
