package screen

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

func TestRatesAreAveragesOverWhatPassed(t *testing.T) {
	var r ring
	at := noon
	add := func(after time.Duration, rx, tx uint64, rate float64) sample {
		at = at.Add(after)
		r.add(at, &api.PeerStatus{RxBytes: rx, TxBytes: tx, RxBytesPerSecond: rate})
		return r.samples[len(r.samples)-1]
	}
	for _, tc := range []struct {
		what   string
		got    sample
		rx, tx float32
	}{
		{"the first has the gateway's own", add(0, 1000, 100, 7), 7, 0},
		{"a second later", add(time.Second, 3000, 150, 7), 2000, 50},
		{"after a pause of 10 s", add(10*time.Second, 13000, 1150, 7), 1000, 100},
		{"the peer came again", add(time.Second, 50, 20, 7), 7, 0},
		{"half a second", add(500*time.Millisecond, 150, 20, 7), 200, 0},
	} {
		if tc.got.rx != tc.rx || tc.got.tx != tc.tx {
			t.Errorf("%s: got %v and %v bytes a second, want %v and %v", tc.what, tc.got.rx, tc.got.tx, tc.rx, tc.tx)
		}
	}
	n := len(r.samples)
	r.add(at, &api.PeerStatus{RxBytes: 900})
	r.add(at.Add(-time.Hour), &api.PeerStatus{RxBytes: 900})
	if len(r.samples) != n {
		t.Error("a sample was taken although no time passed")
	}
}

func TestSamplesOfOneMomentAddUp(t *testing.T) {
	got := together([][]sample{{{2, 1, 1}, {3, 1, 1}}, {{1, 10, 5}, {3, 10, 5}, {4, 10, 5}}, nil, {{2, 100, 0}}})
	if want := []sample{{1, 10, 5}, {2, 101, 1}, {3, 11, 6}, {4, 10, 5}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSamplesAreKeptForAnHour(t *testing.T) {
	d := newData(noon)
	s := api.Status{Peers: []api.PeerStatus{{Name: "cloud", PublicKey: "key"}}}
	const seconds = 10000
	at := noon
	for i := range seconds {
		at = noon.Add(time.Duration(i) * time.Second)
		s.Peers[0].RxBytes += uint64(i)
		d.took(s, at)
	}
	got := d.samples("key", time.Time{})
	if len(got) != capacity {
		t.Fatalf("%d samples, want %d", len(got), capacity)
	}
	for i, s := range got {
		want := seconds - capacity + i
		if s.rx != float32(want) || s.unixMilli != noon.Add(time.Duration(want)*time.Second).UnixMilli() {
			t.Fatalf("sample %d is %v at %v, want %v", i, s.rx, s.unixMilli, want)
		}
	}
	if n := len(d.samples("key", at.Add(-time.Minute))); n != 60 {
		t.Errorf("%d samples in the last minute, want 60", n)
	}
	if n := cap(d.traffic["key"].samples); n > 3*capacity {
		t.Errorf("room for %d samples is kept", n)
	}
	d.took(api.Status{}, at.Add(keep/2))
	if d.samples("key", time.Time{}) == nil {
		t.Error("the samples of a peer that is gone are forgotten at once")
	}
	d.took(api.Status{}, at.Add(keep+time.Minute))
	if len(d.traffic) != 0 {
		t.Error("the samples of a peer that is long gone are kept")
	}
}

func TestTheLogGrowsAndBeginsAnew(t *testing.T) {
	records := func(at time.Time, seqs ...uint64) (out []api.LogRecord) {
		for _, s := range seqs {
			out = append(out, api.LogRecord{Seq: s, Time: at.Add(time.Duration(s) * time.Millisecond)})
		}
		return out
	}
	d := newData(noon)
	if d.lastLogged() != 0 {
		t.Error("something was logged before anything was")
	}
	d.logged(records(noon, 5, 6, 7))
	d.logged(records(noon, 6, 7, 8))
	if len(d.log) != 4 || d.lastLogged() != 8 {
		t.Errorf("got %v", d.log)
	}
	d.logged(records(noon.Add(time.Minute), 1, 2)) // The gateway was restarted.
	if len(d.log) != 2 || d.lastLogged() != 2 {
		t.Errorf("got %v after a restart", d.log)
	}
	for i := range uint64(3 * maxLog) {
		d.logged(records(noon.Add(time.Minute), i+3))
	}
	if len(d.log) != maxLog || d.lastLogged() != 3*maxLog+2 {
		t.Errorf("%d records up to %d are kept", len(d.log), d.lastLogged())
	}
}

func TestFilterMatches(t *testing.T) {
	for _, tc := range []struct {
		filter string
		want   bool
	}{{"", true}, {"!", true}, {"LOU", true}, {"!lou", false}, {"hub", false}, {"!hub", true}, {"direct", true}} {
		if got := (filter{tc.filter}).match("cloud", "Direct"); got != tc.want {
			t.Errorf("%q: got %v, want %v", tc.filter, got, tc.want)
		}
	}
}

func TestOddFiguresAreDrawn(t *testing.T) {
	f := busy()
	for _, v := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
		f.status.Peers[1].RxBytesPerSecond, f.status.Peers[1].Path.RTTSeconds = v, v
		s := play(t, f, 120, 40, false)
		for _, k := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
			fits(t, s.press(k).View(), 120, 40)
		}
	}
}
