package screen

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/history"
	"github.com/postern-dev/postern/tui/chart"
	"github.com/postern-dev/postern/tui/past"
)

const (
	// hour is the range of the strips beside a peer's row, in steps of hourStep.
	hour     = time.Hour
	hourStep = time.Minute
	// hourEvery is how often they are requested, and hourOverlap how much is requested again, since
	// the last minute was incomplete.
	hourEvery   = 10 * time.Second
	hourOverlap = 2 * hourStep
	// hourForgotten is how long strips are kept that are not shown.
	hourForgotten = 5 * time.Minute
)

// remembered is the history as received from the gateway. Views request it while they draw, and
// requests since the last snapshot are sent with the next.
type remembered struct {
	// hours are the last hour of peers, by name.
	hours map[string]*lastHour
	// hourWish are the peers whose hour was drawn.
	hourWish []string

	// timeline is the last answer to timelineWish, the range that is shown.
	timeline     pastAnswer
	timelineWish *api.HistoryRequest
	// err says why there is none, as requested at askedAt.
	err     error
	askedAt time.Time
}

// lastHour is a peer's last hour, until a time of the gateway's clock; at is when it was requested.
type lastHour struct {
	api.PeerHistory
	until, at time.Time
	pieces    map[int][]api.HistoryPoint // by their number; created when drawn
}

// in returns the hour in n pieces.
func (h *lastHour) in(n int) []api.HistoryPoint {
	if h.pieces[n] == nil {
		h.pieces[n] = history.Columns(h.Points, h.until.Add(-hour), h.until, n)
	}
	return h.pieces[n]
}

// pastAnswer is a history and its request.
type pastAnswer struct {
	request api.HistoryRequest
	at      time.Time
	history api.History
}

// pastMsg are the histories that came with a snapshot; those that were not requested are nil.
type pastMsg struct {
	hours, timeline *pastAnswer
	err             error
}

// ask returns what to request now. Peers without an hour come first.
func (r *remembered) ask(now time.Time) (asks pastMsg) {
	hours, timeline := r.hourWish, r.timelineWish
	r.hourWish, r.timelineWish = nil, nil
	if r.err != nil && now.Sub(r.askedAt) < hourEvery {
		return asks
	}
	r.askedAt = now
	var news, known []string
	oldest := now
	for _, name := range hours {
		h := r.hours[name]
		if h == nil {
			news = append(news, name)
			continue
		}
		known = append(known, name)
		if h.at.Before(oldest) {
			oldest = h.at
		}
	}
	part := func(names []string, since time.Duration) *pastAnswer {
		return &pastAnswer{request: api.HistoryRequest{Peers: names, Since: since, Step: hourStep}, at: now}
	}
	switch {
	case len(news) > 0:
		asks.hours = part(news, hour)
	case now.Sub(oldest) >= hourEvery:
		asks.hours = part(known, min(hour, now.Sub(oldest)+hourOverlap))
	}
	if timeline != nil {
		was := &r.timeline
		same := slices.Equal(was.request.Peers, timeline.Peers) && was.request.Since == timeline.Since
		if !same || now.Sub(was.at) >= timelineEvery(*timeline) {
			asks.timeline = &pastAnswer{request: *timeline, at: now}
		}
	}
	return asks
}

// timelineEvery is how often a timeline is requested: twice in a step, but long ones, which hardly
// change, less often.
func timelineEvery(r api.HistoryRequest) time.Duration {
	const most, long = 30 * time.Second, 5 * time.Minute
	if r.Since/max(1, r.Step) > maxPieces {
		return long
	}
	return min(max(hourEvery/2, r.Step/2), most)
}

// maxPieces is more than a screen has columns.
const maxPieces = 500

// fetch queries a gateway. An older gateway has no history, and a peer may be gone.
func (a pastMsg) fetch(ctx context.Context, source Source) pastMsg {
	for _, part := range []*pastAnswer{a.hours, a.timeline} {
		if part == nil {
			continue
		}
		h, err := bounded(ctx, func(ctx context.Context) (api.History, error) { return source.History(ctx, part.request) })
		if part.history = h; err != nil {
			a.err = err
		}
	}
	return a
}

// took stores an answer.
func (r *remembered) took(a pastMsg) {
	if r.err = a.err; a.err != nil {
		return
	}
	if a.timeline != nil {
		r.timeline = *a.timeline
	}
	if a.hours == nil {
		return
	}
	to := a.hours.history.To
	for _, p := range a.hours.history.Peers {
		h := r.hours[p.Peer]
		if h == nil {
			h = &lastHour{}
			r.hours[p.Peer] = h
		}
		h.extend(p, to)
		h.at = a.hours.at
	}
	maps.DeleteFunc(r.hours, func(_ string, h *lastHour) bool { return to.Sub(h.until) > hourForgotten })
}

// extend adds newer points, and replaces those of the same time.
func (h *lastHour) extend(p api.PeerHistory, to time.Time) {
	from := to.Add(-hour)
	if len(p.Points) > 0 {
		n := len(h.Points)
		for n > 0 && !h.Points[n-1].At.Before(p.Points[0].At) {
			n--
		}
		h.Points = h.Points[:n]
		if n > 0 {
			last := &h.Points[n-1]
			last.Seconds = int64(p.Points[0].At.Sub(last.At) / time.Second)
		}
		h.Points = append(h.Points, p.Points...)
	}
	h.Points = slices.DeleteFunc(h.Points, func(x api.HistoryPoint) bool { return !x.At.Add(time.Duration(x.Seconds) * time.Second).After(from) })
	h.Events = slices.DeleteFunc(h.Events, func(e api.HistoryEvent) bool {
		return e.At.Before(from) && !e.Stands(from) || slices.ContainsFunc(p.Events, func(f api.HistoryEvent) bool {
			return e.At.Equal(f.At) && e.Kind == f.Kind && e.Code == f.Code && e.Check == f.Check && e.Event == f.Event
		})
	})
	h.Events = append(h.Events, p.Events...)
	slices.SortStableFunc(h.Events, func(a, b api.HistoryEvent) int { return a.At.Compare(b.At) })
	h.Peer, h.until, h.pieces = p.Peer, to, map[int][]api.HistoryPoint{}
}

// hourOf returns the last hour of a shown peer; nil while there is none.
func (d *data) hourOf(p *api.PeerStatus) *lastHour {
	if !slices.Contains(d.past.hourWish, p.Name) {
		d.past.hourWish = append(d.past.hourWish, p.Name)
	}
	return d.past.hours[p.Name]
}

// drawing returns a range of the gateway's clock, in local time.
func (d *data) drawing(until time.Time, window time.Duration) past.Drawing {
	until = until.In(d.now.Location())
	return past.Drawing{From: until.Add(-window), To: until, Paint: d.paint, Graph: chart.Graph(d.graph)}
}

// strip returns a strip of a peer's last hour in a number of cells; "" while there is none.
func (d *data) strip(p *api.PeerStatus, s past.Strip, cells int) string {
	if h := d.past.hours[p.Name]; h != nil {
		return d.drawing(h.until, hour).Strip(s, h.in(cells))
	}
	return ""
}

// rttCourse returns a peer's round trip in the last hour.
func (d *data) rttCourse(p *api.PeerStatus, cells int) string {
	if h := d.past.hours[p.Name]; h != nil {
		return d.drawing(h.until, hour).Spark(h.Points, cells, past.RTT)
	}
	return ""
}
