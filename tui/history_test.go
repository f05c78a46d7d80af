package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// lately is a history with an outage and malicious texts.
func lately() api.History {
	all := func(o api.Outcome) api.Outcomes { return api.Outcomes{Auth: o, APIServer: o, Gateway: o} }
	at := func(m int) time.Time { return now.Add(time.Duration(m-60) * time.Minute) }
	return api.History{Gateway: "edge", Since: at(0), From: at(0), To: now, Peers: []api.PeerHistory{
		{Peer: "cloud", Points: []api.HistoryPoint{
			{At: at(0), Seconds: 1800, State: api.StateConnected, Path: api.PathDirect, RTTSeconds: 0.012, Outbound: all(api.OK), Inbound: all(api.OK)},
			{At: at(30), Seconds: 120, State: api.StateUnconfirmed, Path: api.PathDirect, Outbound: all(api.OK), Inbound: all(api.OK)},
			{At: at(32), Seconds: 480, State: api.StateFailed, Path: api.PathNone, Outbound: api.Outcomes{Auth: api.Unknown, APIServer: api.Unknown, Gateway: api.Error}, Inbound: all(api.Unknown)},
			{At: at(40), Seconds: 1201, State: api.StateConnected, Path: api.PathRelay, RTTSeconds: 0.2, RxBytesPerSecond: 1e6, Outbound: all(api.OK), Inbound: all(api.OK)},
		}, Events: []api.HistoryEvent{
			{At: at(32), Until: ptr(at(40)), Kind: api.EventVerdict, Code: "PST0106", Check: "gateway", Direction: api.DirectionOutbound, Verdict: api.Error,
				Event: "the peer's packets arrive, ours do not reach it", Reason: "packets of cloud arrive here, but nothing that is sent to it is answered\x1b]52;c;ZXZpbA==\a"},
			{At: at(40), Kind: api.EventPath, Event: "relay 203.0.113.9:49160", Reason: "nothing direct answers"},
		}},
		{Peer: "new\x1b[31m\u202eevil\n"},
	}}
}

func TestHistories(t *testing.T) {
	h := lately()
	for i, name := range []string{"outage", "nothing"} {
		for _, width := range []int{0, 40, 80, 120} {
			got := History(h, &h.Peers[i], width, Options{Now: now})
			if width > 0 {
				fits(t, strings.TrimSuffix(got, "\n"), width)
			}
			golden(t, fmt.Sprintf("history-%s-%d", name, width), got)
		}
	}
	golden(t, "history-outage-color", History(h, &h.Peers[0], 80, Options{Color: true, Now: now}))
	golden(t, "history-outage-ascii", History(h, &h.Peers[0], 80, Options{ASCII: true, Now: now}))
}
