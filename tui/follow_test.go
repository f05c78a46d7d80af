package tui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// follow replays a gateway's status from second to second, the last one indefinitely; nil is no
// answer. It returns what was written, without the times.
func follow(t *testing.T, seconds int, says ...*api.Status) string {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second+time.Millisecond)
		defer cancel()
		err := Follow(ctx, &out, func(context.Context) (api.Status, error) {
			s := says[min(int(time.Since(begin)/time.Second), len(says)-1)]
			if s == nil {
				return api.Status{}, errors.New("no gateway answers on /run/postern/postern.sock\x1b[2J")
			}
			c := *s
			c.Peers = slices.Clone(s.Peers)
			return c, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	var said []string
	for _, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		at, sentence, found := strings.Cut(line, " ")
		if _, err := time.Parse(time.TimeOnly, at); err != nil || !found || !strings.HasSuffix(sentence, ".") {
			t.Errorf("%q is no time and sentence", line)
		}
		for _, r := range sentence {
			if r > '~' && r != '�' || r < ' ' {
				t.Errorf("%q holds %U", sentence, r)
			}
		}
		said = append(said, sentence)
	}
	return strings.Join(said, "\n") + "\n"
}

func TestFollowBeginsWithASummaryAndWhatIsWrong(t *testing.T) {
	s := busy()
	golden(t, "follow-busy", follow(t, 3, &s))
}

func TestFollowSaysWhatChanges(t *testing.T) {
	well := busy()
	well.Peers = slices.Clone(well.Peers[1:2])
	cloud := &well.Peers[0]
	cloud.Local, cloud.Reachability.Outbound.APIServer = nil, api.Verdict{Verdict: api.OK}

	blocked := well
	blocked.Peers = slices.Clone(well.Peers)
	blocked.Peers[0].Reachability.Outbound.Gateway = api.Verdict{Verdict: api.Error, Code: "PST0106", Stage: "probe", Cause: "nothing is answered (sent 4)", Fix: "open UDP port 51820"}
	worse := blocked
	worse.Peers = slices.Clone(blocked.Peers)
	worse.Peers[0].Reachability.Outbound.Gateway.Cause = "nothing is answered (sent 5)" // no news

	moved := well
	moved.Peers = append(slices.Clone(well.Peers), api.PeerStatus{Name: "hub", State: api.StateConnecting, Path: api.Path{Kind: api.PathNone}})
	moved.Peers[0].Path = api.Path{Kind: api.PathRelay, Remote: "203.0.113.9:3478"}
	moved.Problems = []api.Check{{Name: "resources", Verdict: api.Verdict{Verdict: api.Warning, Code: "PST0810", Cause: "the buffer is small", Fix: "sysctl -w net.core.rmem_max=7500000"}}}
	restarted := well
	restarted.Gateway.StartedAt = now

	golden(t, "follow-changes", follow(t, 60, &well, &well, &blocked, &worse, &worse, &well, &moved, &well, nil, nil, nil, nil, nil, &restarted))
}

func TestFollowOfManyPeersIsBounded(t *testing.T) {
	s := api.Status{Gateway: api.GatewayStatus{Name: "edge"}}
	for i := range 1000 {
		s.Peers = append(s.Peers, api.PeerStatus{Name: fmt.Sprint("site-", i), State: api.StateFailed})
	}
	said := follow(t, 1, &s)
	if n := strings.Count(said, "\n"); n != maxSentences+1 || !strings.HasSuffix(said, "And 961 more; postern status has all.\n") {
		t.Errorf("%d lines:\n%s", n, said)
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	gone := errors.New("broken pipe")
	s := busy()
	if err := Follow(t.Context(), failing{gone}, func(context.Context) (api.Status, error) { return s, nil }); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
	if err := Follow(t.Context(), &bytes.Buffer{}, func(context.Context) (api.Status, error) { return s, gone }); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
