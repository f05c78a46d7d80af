// Package history keeps the recent history of peers in little memory: the state of each, by the
// second and then by the minute, and its events. It has no clock, no goroutine and no file, so it
// starts over with its gateway.
//
// # What is kept
//
// For each peer it keeps a day, the last 10 minutes of it by the second and the rest by the minute,
// and the latest events. A point is 16 bytes, and lasts until something differs from it by more
// than an eighth: a healthy peer whose figures stay within that takes one point a day. Points are
// only folded when there is no room for another one. One that represents several has the worst of
// their values.
//
// # The bound
//
// A peer takes at most [MaxPeer], and all together [MaxAll], of which each has the same share. Up
// to 128 peers all of the above is kept whatever happens. With more peers, what is older than 10
// minutes becomes coarser first (2, 5, 15 minutes), then the last ten minutes (2, 5, 10, 30
// seconds), finally both (an hour, a minute), and then the oldest is dropped. Events have a third
// of the room. The oldest are dropped first, and current verdicts last. From 16,000 peers on there
// is room for nothing.
package history

import (
	"math"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/postern-dev/postern/control/api"
)

const (
	// MaxPeer is how much one peer may take, and MaxAll how much all together, in bytes.
	MaxPeer = 64 << 10
	MaxAll  = 8 << 20
	// maxText bounds the text of an event, in bytes.
	maxText = 240
)

// History is safe for concurrent use. The times that it gets should increase. If a clock is set
// back, the new data for a time replaces the old.
type History struct {
	since time.Time

	mu    sync.Mutex
	peers map[string]*series
}

// New returns an empty history; since is when the gateway started.
func New(since time.Time) *History {
	return &History{since: since.Truncate(time.Second), peers: map[string]*series{}}
}

// SetPeers sets the peers whose history is kept. The history of others is dropped.
func (h *History) SetPeers(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := make(map[string]*series, len(names))
	for _, name := range names {
		if next[name] = h.peers[name]; next[name] == nil {
			next[name] = &series{}
		}
	}
	h.peers = next
	for _, s := range h.peers {
		s.trim(h.room())
		if limit := h.limit(s); cap(s.points) > limit {
			s.shrink(s.seen, limit)
		}
	}
}

// Forget drops the history of a peer.
func (h *History) Forget(peer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.peers[peer] != nil {
		h.peers[peer] = &series{}
	}
}

// overhead is what a peer takes besides points and events: its series, its name, and its map entry.
// What the allocator adds by rounding up is at most a sixteenth of the rest.
const (
	overhead = 512
	rounding = 16
)

// room returns how much the points and events of each peer may take.
func (h *History) room() int {
	share := min(MaxPeer, MaxAll/max(1, len(h.peers)))
	return max(0, share-share/rounding-overhead)
}

// limit returns the maximum number of points of a peer.
func (h *History) limit(s *series) int {
	return max(0, h.room()-s.eventSize()) / int(unsafe.Sizeof(point{}))
}

// at converts a time to seconds since the beginning.
func (h *History) at(t time.Time) uint32 {
	return uint32(min(max(0, t.Unix()-h.since.Unix()), math.MaxUint32))
}

// Observe records the current state of a peer.
func (h *History) Observe(now time.Time, peer string, is Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.peers[peer]
	if s == nil {
		return
	}
	words := [len(fields)]string{string(is.State), is.Path}
	for i, o := range s.found {
		words[2+i] = string(o)
	}
	p := point{at: h.at(now), what: pack(words), rtt: float(float64(is.RTT.Microseconds())), rx: float(is.Rx), tx: float(is.Tx)}
	if !math.IsNaN(is.Loss) {
		p.loss = 1 + uint16(min(max(0, is.Loss), 1)*lossScale)
	}
	s.add(p, h.limit(s))
}

// Judge records the current verdicts on a peer: a word each on its endpoints and ours, one on what
// is found beside them, and the findings that are not explained by others, by their Code, Check,
// Direction, Verdict, Event and Reason. A finding that is no longer among them has ended.
func (h *History) Judge(now time.Time, peer string, outbound, inbound api.Outcomes, roots []api.HistoryEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.peers[peer]
	if s == nil {
		return
	}
	s.found = [...]api.Outcome{outbound.Auth, outbound.APIServer, outbound.Gateway, inbound.Auth, inbound.APIServer, inbound.Gateway, outbound.Beside}
	standing := func(e api.HistoryEvent) bool { return e.Kind == api.EventVerdict && e.Until == nil }
	same := func(a, b api.HistoryEvent) bool {
		return a.Code == b.Code && a.Check == b.Check && a.Direction == b.Direction && a.Verdict == b.Verdict
	}
	for i, e := range s.events {
		if standing(e) && !slices.ContainsFunc(roots, func(r api.HistoryEvent) bool { return same(e, r) }) {
			until := now.UTC()
			if until.Before(e.At) { // found at the same time by someone else
				until = e.At
			}
			s.events[i].Until = &until
		}
	}
	for _, r := range roots {
		if !slices.ContainsFunc(s.events, func(e api.HistoryEvent) bool { return standing(e) && same(e, r) }) {
			r.At, r.Kind, r.Until = now.UTC(), api.EventVerdict, nil
			s.note(r, h.room())
		}
	}
}

// Note records an event of a peer.
func (h *History) Note(peer string, e api.HistoryEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.peers[peer]; s != nil {
		e.At = e.At.UTC()
		s.note(e, h.room())
	}
}

// note inserts an event in order.
func (s *series) note(e api.HistoryEvent, room int) {
	e.Event, e.Reason = shortened(e.Event), shortened(e.Reason)
	i := len(s.events)
	for i > 0 && s.events[i-1].At.After(e.At) {
		i--
	}
	if len(s.events) == cap(s.events) {
		s.events = roomy(s.events, 4)
	}
	s.events = slices.Insert(s.events, i, e)
	s.trim(room)
}

// trim drops events until they fit into their share.
func (s *series) trim(room int) {
	for len(s.events) > 0 && s.eventSize() > room/3 {
		i := max(0, slices.IndexFunc(s.events, func(e api.HistoryEvent) bool { return e.Kind != api.EventVerdict || e.Until != nil }))
		s.events = roomy(slices.Delete(s.events, i, i+1), 0)
	}
}

// eventSize returns the memory of the events.
func (s *series) eventSize() int {
	size := cap(s.events) * int(unsafe.Sizeof(api.HistoryEvent{}))
	for i := range s.events {
		e := &s.events[i]
		size += len(e.Event) + len(e.Reason) + len(e.Code) + len(e.Check)
		if e.Until != nil {
			size += int(unsafe.Sizeof(*e.Until))
		}
	}
	return size
}

// shortened returns a text cut to maxText. It is a copy, so that it does not keep a longer one
// alive.
func shortened(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Since returns when the history began.
func (h *History) Since() time.Time { return h.since.UTC() }

// Read returns the history of a peer from a time until now, in steps; 0 returns the points as they
// are kept. It returns false for a peer without history.
func (h *History) Read(peer string, from, now time.Time, by time.Duration) (api.PeerHistory, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.peers[peer]
	if s == nil {
		return api.PeerHistory{}, false
	}
	out := api.PeerHistory{Peer: peer, Points: []api.HistoryPoint{}, Events: []api.HistoryEvent{}}
	end := h.at(now)
	first := end - min(end, keep)
	points := after(slices.Clone(s.points), max(h.at(from), first))
	if width := uint32(by / time.Second); width > 1 {
		// Steps are aligned to the clock, so that they do not move.
		offset := uint32(h.since.Unix() % int64(width))
		for i := range points {
			points[i].at += offset
		}
		points = fold(points, end+offset, every(width))
		for i := range points {
			points[i].at -= offset
		}
	}
	for i, p := range points {
		until := end + 1
		if i+1 < len(points) {
			until = points[i+1].at
		}
		if p.at < until {
			out.Points = append(out.Points, h.shown(p, until))
		}
	}
	for _, e := range s.events {
		if !e.At.Before(from) || e.Kind == api.EventVerdict && (e.Until == nil || e.Until.After(from)) {
			if e.Until != nil {
				e.Until = new(*e.Until)
			}
			out.Events = append(out.Events, e)
		}
	}
	return out, true
}

// shown converts a point to the API's form.
func (h *History) shown(p point, until uint32) api.HistoryPoint {
	out := api.HistoryPoint{
		At: h.since.Add(time.Duration(p.at) * time.Second).UTC(), Seconds: int64(until - p.at),
		RTTSeconds: number(p.rtt) / 1e6, RxBytesPerSecond: number(p.rx), TxBytesPerSecond: number(p.tx),
	}
	say(&out, unpack(p.what))
	if p.loss > 0 {
		ratio := float64(p.loss-1) / lossScale
		out.LossRatio = &ratio
	}
	return out
}
