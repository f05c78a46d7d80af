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
		want    bool
	}{
		{"a service is down", "echo", errors.New("refused"), time.Minute, time.Hour, false, true},
		{"its last connection worked", "echo", nil, time.Minute, time.Hour, false, false},
		{"that was long ago", "echo", errors.New("refused"), 2 * lostFor, time.Hour, false, false},
		{"the peer is away", "echo", errors.New("timeout"), time.Minute, time.Hour, true, false},
		{"the peer was away", "echo", errors.New("timeout"), time.Minute, 30 * time.Second, false, false},
		{"auth has a check of its own", api.ServiceAuth, errors.New("refused"), time.Minute, time.Hour, false, false},
	} {
		l := forward.LocalState{Peer: "cloud", Service: c.service, Lost: c.lost, LostAt: now.Add(-c.ago)}
		got, lost := lostService(l, func(string) (time.Time, bool) { return now.Add(-c.since), !c.gone }, now)
		if lost != c.want {
			t.Errorf("%s: %v, %+v, want %v", c.name, lost, got, c.want)
		}
	}
}
