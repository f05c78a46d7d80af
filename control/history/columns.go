package history

import (
	"cmp"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Columns divides the time between two moments into n pieces, and returns one point for each, which
// combines all points in it. A piece about which nothing is known has no state.
func Columns(points []api.HistoryPoint, from, to time.Time, n int) []api.HistoryPoint {
	out := make([]api.HistoryPoint, n)
	width := to.Sub(from) / time.Duration(max(1, n))
	for i := range out {
		begin := from.Add(time.Duration(i) * width)
		end := begin.Add(width)
		for len(points) > 0 && !ends(&points[0]).After(begin) {
			points = points[1:]
		}
		out[i] = join(points, begin, end)
	}
	return out
}

// At returns the point at a moment; it has no state if there is none.
func At(points []api.HistoryPoint, at time.Time) api.HistoryPoint {
	return Columns(points, at, at.Add(1), 1)[0]
}

func ends(p *api.HistoryPoint) time.Time { return p.At.Add(time.Duration(p.Seconds) * time.Second) }

// join combines what the points say about a period into one point.
func join(points []api.HistoryPoint, begin, end time.Time) api.HistoryPoint {
	out := api.HistoryPoint{At: begin, Seconds: int64(end.Sub(begin) / time.Second)}
	what, rx, tx, all := uint32(0), 0.0, 0.0, 0.0
	for i := range points {
		p := &points[i]
		if !p.At.Before(end) {
			break
		}
		what = worse(what, pack(wordsOf(p)))
		out.RTTSeconds = max(out.RTTSeconds, p.RTTSeconds)
		if p.LossRatio != nil && (out.LossRatio == nil || *p.LossRatio > *out.LossRatio) {
			out.LossRatio = p.LossRatio
		}
		first, last := begin, end
		if p.At.After(first) {
			first = p.At
		}
		if e := ends(p); e.Before(last) {
			last = e
		}
		lasted := last.Sub(first).Seconds()
		rx, tx, all = rx+lasted*p.RxBytesPerSecond, tx+lasted*p.TxBytesPerSecond, all+lasted
	}
	if all > 0 {
		out.RxBytesPerSecond, out.TxBytesPerSecond = rx/all, tx/all
	}
	say(&out, unpack(what))
	return out
}

// wordsOf returns the words of a point, in the order of fields.
func wordsOf(p *api.HistoryPoint) [len(fields)]string {
	out, in := &p.Outbound, &p.Inbound
	return [...]string{string(p.State), p.Path,
		string(out.Auth), string(out.APIServer), string(out.Gateway), string(in.Auth), string(in.APIServer), string(in.Gateway), string(out.Beside)}
}

// say sets the words of a point. A verdict that was not found yet is unknown, and empty if it is
// the one beside the endpoints.
func say(p *api.HistoryPoint, w [len(fields)]string) {
	p.State, p.Path = api.PeerState(w[0]), w[1]
	for i, into := range []*api.Outcome{&p.Outbound.Auth, &p.Outbound.APIServer, &p.Outbound.Gateway, &p.Inbound.Auth, &p.Inbound.APIServer, &p.Inbound.Gateway} {
		*into = api.Outcome(cmp.Or(w[2+i], string(api.Unknown)))
	}
	p.Outbound.Beside = api.Outcome(w[len(w)-1])
}
