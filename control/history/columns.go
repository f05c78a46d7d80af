package history

import (
	"cmp"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Columns cuts the time from one moment to another into n pieces, and returns how it was in each: as one
// point for all that there are of it. One of which nothing is known has no state.
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

// At is how it was at a moment; nothing is known where there is no point.
func At(points []api.HistoryPoint, at time.Time) api.HistoryPoint {
	return Columns(points, at, at.Add(1), 1)[0]
}

func ends(p *api.HistoryPoint) time.Time { return p.At.Add(time.Duration(p.Seconds) * time.Second) }

// join makes one point of what the points say of a time.
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

// wordsOf are the words of a point, in the order of fields.
func wordsOf(p *api.HistoryPoint) [len(fields)]string {
	out, in := &p.Outbound, &p.Inbound
	return [...]string{string(p.State), p.Path,
		string(out.Auth), string(out.APIServer), string(out.Gateway), string(in.Auth), string(in.APIServer), string(in.Gateway), string(out.Beside)}
}

// say puts words into a point. What was not found yet is unknown, and beside the endpoints nothing.
func say(p *api.HistoryPoint, w [len(fields)]string) {
	p.State, p.Path = api.PeerState(w[0]), w[1]
	for i, into := range []*api.Outcome{&p.Outbound.Auth, &p.Outbound.APIServer, &p.Outbound.Gateway, &p.Inbound.Auth, &p.Inbound.APIServer, &p.Inbound.Gateway} {
		*into = api.Outcome(cmp.Or(w[2+i], string(api.Unknown)))
	}
	p.Outbound.Beside = api.Outcome(w[len(w)-1])
}
