package history_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/history"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// well returns the sample of a healthy peer.
func well() history.Sample {
	return history.Sample{State: api.StateConnected, Path: api.PathDirect, RTT: 12 * time.Millisecond, Loss: math.NaN(), Rx: 300}
}

// restless returns random samples, each different from the last.
func restless(r *rand.Rand) history.Sample {
	s := well()
	s.RTT, s.Rx, s.Tx = time.Duration(1+r.IntN(1000))*time.Millisecond, float64(r.IntN(1e9)), float64(r.IntN(1e9))
	if r.IntN(600) == 0 {
		s.State, s.Path = api.StateFailed, api.PathNone
	}
	return s
}

func of(peers ...string) *history.History {
	h := history.New(noon)
	h.SetPeers(peers)
	return h
}

// read returns everything that is kept, and fails if points leave a gap or overlap.
func read(t *testing.T, h *history.History, peer string, from, to time.Time, step time.Duration) api.PeerHistory {
	t.Helper()
	p, ok := h.Read(peer, from, to, step)
	if !ok {
		t.Fatalf("nothing is kept of %s", peer)
	}
	for i := 1; i < len(p.Points); i++ {
		if end := p.Points[i-1].At.Add(time.Duration(p.Points[i-1].Seconds) * time.Second); !end.Equal(p.Points[i].At) {
			t.Fatalf("the point at %v ends at %v, and the next begins at %v", p.Points[i-1].At, end, p.Points[i].At)
		}
	}
	return p
}

// at returns the point at a moment.
func at(p api.PeerHistory, t time.Time) api.HistoryPoint {
	i := slices.IndexFunc(p.Points, func(x api.HistoryPoint) bool {
		return !x.At.After(t) && x.At.Add(time.Duration(x.Seconds)*time.Second).After(t)
	})
	if i < 0 {
		return api.HistoryPoint{}
	}
	return p.Points[i]
}

// This also holds with the number of peers that the whole room is meant for, and as many events as
// there is room for.
func TestADayByTheMinuteAndTenMinutesByTheSecond(t *testing.T) {
	names := []string{"edge"}
	for len(names) < history.MaxAll/history.MaxPeer {
		names = append(names, fmt.Sprint(len(names)))
	}
	h, r := of(names...), rand.New(rand.NewPCG(1, 2))
	now := noon
	samples := map[time.Time]history.Sample{}
	for ; now.Before(noon.Add(26 * time.Hour)); now = now.Add(time.Second) {
		samples[now] = restless(r)
		h.Observe(now, "edge", samples[now])
		if now.Second() == 0 {
			h.Note("edge", api.HistoryEvent{At: now, Kind: api.EventPath, Event: "punching", Reason: strings.Repeat("why ", 50)})
		}
	}
	now = now.Add(-time.Second)
	p := read(t, h, "edge", time.Time{}, now, 0)
	if first := p.Points[0].At; first.Before(now.Add(-24*time.Hour)) || first.After(now.Add(-24*time.Hour+time.Minute)) {
		t.Errorf("the first point is of %v, want a day before %v", first, now)
	}
	for _, x := range p.Points[1:] {
		most := int64(60)
		if now.Sub(x.At) < 10*time.Minute {
			most = 3 // neighbours may be alike
		}
		if x.Seconds > most {
			t.Fatalf("the point %v before the end stands for %d s, want %d at most", now.Sub(x.At), x.Seconds, most)
		}
		var worst, rtt, rx = api.StateConnected, 0.0, 0.0
		for i := range x.Seconds {
			s := samples[x.At.Add(time.Duration(i)*time.Second)]
			if s.State == api.StateFailed {
				worst = s.State
			}
			rtt, rx = max(rtt, s.RTT.Seconds()), rx+s.Rx/float64(x.Seconds)
		}
		if x.State != worst || math.Abs(x.RTTSeconds-rtt) > rtt/8+1e-3 || math.Abs(x.RxBytesPerSecond-rx) > rx/8+1e3 {
			t.Fatalf("at %v: %s, %.3f s and %.0f B/s, want %s, %.3f and %.0f", x.At, x.State, x.RTTSeconds, x.RxBytesPerSecond, worst, rtt, rx)
		}
	}
	h.SetPeers(names[:1])
	if size := h.Size(); size > history.MaxPeer {
		t.Errorf("one peer takes %d bytes", size)
	}
}

// A day of a thousand peers that change all the time, each of which has repeated faults with texts
// of maximum length: by the minute, and its end by the second.
func TestAThousandPeersStayWithinTheBound(t *testing.T) {
	const peers, steps, bySecond = 1000, 24*60 + 1200, 1200
	var names []string
	for i := range peers {
		names = append(names, fmt.Sprintf("peer-%d", i))
	}
	before := heap()
	h, r := of(names...), rand.New(rand.NewPCG(3, 4))
	now := noon
	for i := range steps {
		if now = now.Add(time.Second); i < steps-bySecond {
			now = noon.Add(time.Duration(i) * time.Minute)
		}
		for j, name := range names {
			h.Observe(now, name, restless(r))
			if (i+j)%60 == 0 {
				h.Judge(now, name, api.Outcomes{}, api.Outcomes{}, []api.HistoryEvent{{Code: fmt.Sprint(i), Reason: strings.Repeat("why ", 100)}})
			}
		}
		if i%300 == 299 {
			if size := h.Size(); size > history.MaxAll {
				t.Fatalf("after %v the history says it takes %d bytes", now.Sub(noon), size)
			}
		}
	}
	if took := int64(heap()) - int64(before); took > history.MaxAll {
		t.Errorf("the history takes %d bytes of the heap, %d by its own count", took, h.Size())
	}
	p := read(t, h, "peer-7", time.Time{}, now, 0)
	if first := p.Points[0].At; first.After(now.Add(-24*time.Hour + time.Hour)) {
		t.Errorf("the first point is of %v, %v before the end: the oldest is dropped before it is coarser", first, now.Sub(first))
	}
	if last := p.Points[len(p.Points)-2]; last.Seconds > 5 {
		t.Errorf("of the last seconds a point stands for %d s", last.Seconds)
	}
	if n := len(p.Events); n < 3 || p.Events[n-1].Until != nil {
		t.Errorf("%d events are kept, the last of them %+v", n, p.Events[n-1])
	}
	// With few peers there is room again, and removed ones take none.
	h.SetPeers(names[:2])
	if size := h.Size(); size > 2*history.MaxAll/peers {
		t.Errorf("two peers that are left take %d bytes", size)
	}
	runtime.KeepAlive(h)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Additional peers immediately make the history of the existing ones coarser.
func TestEachPeerHasTheSameShare(t *testing.T) {
	h, r := of("a", "b"), rand.New(rand.NewPCG(5, 6))
	for i := range 7200 {
		h.Observe(noon.Add(time.Duration(i)*time.Second), "a", restless(r))
		h.Observe(noon.Add(time.Duration(i)*time.Second), "b", restless(r))
	}
	names := []string{"a", "b"}
	now := noon.Add(2 * time.Hour)
	for _, n := range []int{5000, 13_000, 16_000, 200_000} {
		for len(names) < n {
			names = append(names, fmt.Sprint(len(names)))
		}
		h.SetPeers(names)
		for range 100 {
			now = now.Add(time.Second)
			for _, name := range names[:100] {
				h.Observe(now, name, restless(r))
				h.Note(name, api.HistoryEvent{At: now, Kind: api.EventPath, Event: "direct"})
			}
		}
		share := history.MaxAll / n
		if size := h.Size(); share > 512 && size > history.MaxAll {
			t.Errorf("%d peers take %d bytes", n, size)
		}
		// Beyond 16,000 peers, a peer's name and map entry alone exceed its share.
		if p := read(t, h, "b", time.Time{}, now, 0); (len(p.Points) > 0) != (share > 600) {
			t.Errorf("of one of %d peers there are %d points and %d events", n, len(p.Points), len(p.Events))
		}
	}
}

func TestAPeerThatIsWellTakesNextToNothing(t *testing.T) {
	h := of("edge")
	now := noon
	for i := range 86400 {
		now = noon.Add(time.Duration(i) * time.Second)
		s := well()
		s.RTT += time.Duration(i%7) * 100 * time.Microsecond
		s.Rx += float64(i % 500)
		h.Observe(now, "edge", s)
	}
	if p := read(t, h, "edge", time.Time{}, now, 0); len(p.Points) != 1 || p.Points[0].Seconds != 86400 {
		t.Errorf("%d points: %+v", len(p.Points), p.Points[0])
	}
	if size := h.Size(); size > 2048 {
		t.Errorf("it takes %d bytes", size)
	}
}

func TestWhatIsKeptOfASecond(t *testing.T) {
	h := of("edge")
	s := history.Sample{State: api.StateUnconfirmed, Path: api.PathRelay, RTT: 123456 * time.Microsecond, Loss: 0.034, Rx: 1e9, Tx: 12345678}
	h.Judge(noon, "edge", api.Outcomes{Auth: api.OK, APIServer: api.Warning, Gateway: api.Error, Beside: api.Warning},
		api.Outcomes{Auth: api.Off, APIServer: api.Unknown, Gateway: api.OK}, nil)
	h.Observe(noon, "edge", s)
	got := read(t, h, "edge", noon, noon, 0).Points[0]
	if got.State != s.State || got.Path != s.Path || math.Abs(got.RTTSeconds-0.123456) > 1e-4 || math.Abs(*got.LossRatio-0.034) > 1e-4 ||
		math.Abs(got.RxBytesPerSecond-1e9) > 1e6 || math.Abs(got.TxBytesPerSecond-12345678) > 1e4 {
		t.Errorf("got %+v", got)
	}
	if got.Outbound != (api.Outcomes{Auth: api.OK, APIServer: api.Warning, Gateway: api.Error, Beside: api.Warning}) ||
		got.Inbound != (api.Outcomes{Auth: api.Off, APIServer: api.Unknown, Gateway: api.OK}) {
		t.Errorf("got %+v and %+v", got.Outbound, got.Inbound)
	}
	odd := history.Sample{State: "dancing", Path: "tunnel", RTT: -1, Loss: math.Inf(1), Rx: math.NaN(), Tx: math.Inf(1)}
	h.Observe(noon.Add(time.Second), "edge", odd)
	got = read(t, h, "edge", noon, noon.Add(time.Second), 0).Points[1]
	if got.State != "" || got.Path != "" || got.RTTSeconds != 0 || *got.LossRatio != 1 || got.RxBytesPerSecond != 0 || got.TxBytesPerSecond < 1e12 {
		t.Errorf("got %+v", got)
	}
}

// Of several moments the worst finding beside the endpoints counts, and no finding stays none.
func TestWhatIsFoundBesideIsKept(t *testing.T) {
	h := of("edge")
	end := noon
	for _, o := range []api.Outcome{"", api.Warning, api.Error, ""} {
		h.Judge(end, "edge", api.Outcomes{Gateway: api.OK, Beside: o}, api.Outcomes{}, nil)
		h.Observe(end, "edge", well())
		end = end.Add(time.Second)
	}
	var got []api.Outcome
	p := read(t, h, "edge", noon, end, 0)
	for _, x := range p.Points {
		got = append(got, x.Outbound.Beside)
	}
	if want := []api.Outcome{"", api.Warning, api.Error, ""}; !slices.Equal(got, want) {
		t.Errorf("by the second: got %q, want %q", got, want)
	}
	if all := history.Columns(p.Points, noon, end, 1)[0]; all.Outbound.Beside != api.Error || all.Inbound.Beside != "" {
		t.Errorf("in one piece: %q out, %q in, want the error out", all.Outbound.Beside, all.Inbound.Beside)
	}
}

func TestAGapIsNotGuessed(t *testing.T) {
	h := of("edge")
	h.Observe(noon, "edge", well())
	h.Observe(noon.Add(time.Hour), "edge", well())
	p := read(t, h, "edge", time.Time{}, noon.Add(time.Hour), 0)
	if got := at(p, noon.Add(time.Minute)); got.State != "" || got.Seconds < 3590 {
		t.Errorf("while nobody looked the peer was %q for %d s", got.State, got.Seconds)
	}
	if got := at(p, noon.Add(time.Hour)); got.State != api.StateConnected {
		t.Errorf("after it the peer is %q", got.State)
	}
}

func TestAClockThatIsPutBackTakesItsTimeAgain(t *testing.T) {
	h := of("edge")
	for i := range 100 {
		s := well()
		if i >= 50 {
			s.State = api.StateFailed
		}
		h.Observe(noon.Add(time.Duration(i)*time.Second), "edge", s)
	}
	now := noon.Add(20 * time.Second)
	for range 10 {
		now = now.Add(time.Second)
		h.Observe(now, "edge", well())
	}
	p := read(t, h, "edge", time.Time{}, now, 0)
	if got := at(p, now); got.State != api.StateConnected {
		t.Errorf("it is %q", got.State)
	}
	h.Observe(noon.Add(-time.Hour), "edge", well()) // before the beginning
	read(t, h, "edge", time.Time{}, noon, 0)
}

func TestStepsAreThoseOfTheClock(t *testing.T) {
	h := history.New(noon.Add(17 * time.Second))
	h.SetPeers([]string{"edge"})
	for i := range 600 {
		s := well()
		s.Rx = 1e6
		if i == 100 { // at 12:01:57
			s.State, s.Rx = api.StateFailed, 7e6
		}
		h.Observe(noon.Add(time.Duration(17+i)*time.Second), "edge", s)
	}
	p := read(t, h, "edge", time.Time{}, noon.Add(616*time.Second), time.Minute)
	got := at(p, noon.Add(117*time.Second))
	if got.State != api.StateFailed || !got.At.Equal(noon.Add(117*time.Second)) || got.Seconds != 3 || math.Abs(got.RxBytesPerSecond-3e6) > 1e4 {
		t.Errorf("to the end of the second minute it is %+v", got)
	}
	if next := at(p, noon.Add(2*time.Minute)); next.State != api.StateConnected {
		t.Errorf("the third minute is %+v", next)
	}
}

func TestVerdictsComeAndGo(t *testing.T) {
	h := of("edge")
	minute := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	judge := func(at time.Time, codes ...string) {
		var roots []api.HistoryEvent
		for _, c := range codes {
			roots = append(roots, api.HistoryEvent{Code: c, Check: "gateway", Direction: api.DirectionOutbound, Verdict: api.Error, Reason: "since " + at.Format(time.TimeOnly)})
		}
		h.Judge(at, "edge", api.Outcomes{}, api.Outcomes{}, roots)
	}
	judge(minute(1), "PST0101")
	judge(minute(2), "PST0101", "PST0601")
	judge(minute(3), "PST0601")
	judge(minute(4))
	judge(minute(5), "PST0101")
	h.Note("edge", api.HistoryEvent{At: minute(2).Add(time.Second), Kind: api.EventPath, Event: "relay", Reason: "the direct path is silent"})
	list := func(p api.PeerHistory) string {
		var out []string
		for _, e := range p.Events {
			s := e.At.Format("04") + " " + string(e.Kind) + " " + e.Code + e.Event
			if e.Until != nil {
				s += " until " + e.Until.Format("04")
			}
			out = append(out, s)
		}
		return strings.Join(out, ", ")
	}
	want := "01 verdict PST0101 until 03, 02 verdict PST0601 until 04, 02 path relay, 05 verdict PST0101"
	if got := list(read(t, h, "edge", time.Time{}, minute(6), 0)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// A later range contains what was in force then.
	want = "02 verdict PST0601 until 04, 05 verdict PST0101"
	if got := list(read(t, h, "edge", minute(3), minute(6), 0)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if e := read(t, h, "edge", time.Time{}, minute(6), 0).Events[0]; !e.Stands(minute(2)) || e.Stands(minute(3)) || e.Stands(noon) {
		t.Errorf("%+v does not stand when it should", e)
	}
}

// A current verdict is kept however much has happened since.
func TestAVerdictThatStandsIsDroppedLast(t *testing.T) {
	h := of("edge")
	h.Judge(noon, "edge", api.Outcomes{}, api.Outcomes{}, []api.HistoryEvent{{Code: "PST0101"}})
	for i := range 10_000 {
		h.Note("edge", api.HistoryEvent{At: noon.Add(time.Duration(i) * time.Second), Kind: api.EventPath, Event: "punching", Reason: strings.Repeat("é", 1000)})
	}
	p := read(t, h, "edge", time.Time{}, noon.Add(3*time.Hour), 0)
	if len(p.Events) < 20 || p.Events[0].Code != "PST0101" {
		t.Errorf("%d events are kept, of which the first is %+v", len(p.Events), p.Events[0])
	}
	if last := p.Events[len(p.Events)-1]; !last.At.Equal(noon.Add(9999*time.Second)) || len(last.Reason) > 240 || !strings.HasSuffix(last.Reason, "é…") {
		t.Errorf("the last is %+v", last)
	}
	if size := h.Size(); size > history.MaxPeer {
		t.Errorf("it takes %d bytes", size)
	}
}

func TestNothingIsKeptOfStrangers(t *testing.T) {
	h := of("edge")
	h.Observe(noon, "hub", well())
	h.Judge(noon, "hub", api.Outcomes{}, api.Outcomes{}, []api.HistoryEvent{{Code: "PST0101"}})
	h.Note("hub", api.HistoryEvent{At: noon})
	if _, ok := h.Read("hub", time.Time{}, noon, 0); ok {
		t.Error("something is kept of a peer that is none")
	}
	h.Observe(noon, "edge", well())
	h.Forget("edge")
	if p := read(t, h, "edge", time.Time{}, noon, 0); len(p.Points) > 0 {
		t.Errorf("of a peer that was forgotten there is %+v", p.Points)
	}
}

// The cost of a second of a thousand peers that change all the time.
func BenchmarkASecondOfAThousandPeers(b *testing.B) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint(i))
	}
	h, r := of(names...), rand.New(rand.NewPCG(7, 8))
	samples := make([]history.Sample, 1000)
	for i := range samples {
		samples[i] = restless(r)
	}
	now := noon
	for b.Loop() {
		now = now.Add(time.Second)
		for i, name := range names {
			h.Observe(now, name, samples[(i+now.Second())%1000])
		}
	}
}
