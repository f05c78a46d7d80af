package gateway

import (
	"errors"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/forward"
)

// A connection that was lost while its peer was away says nothing about the service.
func TestLostServicesAreThoseOfPeersThatWereThere(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name    string
		service string
		lost    error
		ago     time.Duration
		since   time.Duration // for how long the peer is connected
		gone    bool
		want    int
	}{
		{"a service is down", "echo", errors.New("refused"), time.Minute, time.Hour, false, 1},
		{"its last connection worked", "echo", nil, time.Minute, time.Hour, false, 0},
		{"that was long ago", "echo", errors.New("refused"), 2 * lostFor, time.Hour, false, 0},
		{"the peer is away", "echo", errors.New("timeout"), time.Minute, time.Hour, true, 0},
		{"the peer was away", "echo", errors.New("timeout"), time.Minute, 30 * time.Second, false, 0},
		{"auth has a check of its own", api.ServiceAuth, errors.New("refused"), time.Minute, time.Hour, false, 0},
	} {
		locals := []forward.LocalState{{Peer: "cloud", Service: c.service, Lost: c.lost, LostAt: now.Add(-c.ago)}}
		got := lostServices(locals, func(string) (time.Time, bool) { return now.Add(-c.since), !c.gone }, now)
		if len(got) != c.want {
			t.Errorf("%s: got %+v, want %d", c.name, got, c.want)
		}
	}
}
