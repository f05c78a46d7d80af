package exchange

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/auth"
)

func TestAPeerHasAFewListenersOfItsOwn(t *testing.T) {
	many := []string{"auth"}
	for i := range 40 {
		many = append(many, fmt.Sprintf("s%02d", 39-i))
	}
	got, excess := Automatic(append(many, "apiServer"))
	want := []string{"apiServer"}
	for i := range automaticListeners - 1 {
		want = append(want, fmt.Sprintf("s%02d", i))
	}
	if !slices.Equal(got, want) || excess != 40-len(want)+1 {
		t.Errorf("got %v and %d more, want %v", got, excess, want)
	}
	if got, excess := Automatic([]string{"b", "auth", "a"}); !slices.Equal(got, []string{"apiServer", "a", "b"}) || excess != 0 {
		t.Errorf("of two services: %v and %d more", got, excess)
	}
}

func TestTheClusterFollowsAPeerAtItsOwnPace(t *testing.T) {
	var o following
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	at := func(port uint16) map[string]uint16 { return map[string]uint16{"b": port} }
	if services, _, ok := o.get("edge"); ok {
		t.Errorf("offered before anything was heard: %v", services)
	}
	for _, c := range []struct {
		what   string
		after  time.Duration
		offers []string // nil: nothing is heard
		ports  map[string]uint16
		want   []string
		port   uint16 // of b
	}{
		{"the first", 0, []string{"b", "a"}, at(1), []string{"a", "b"}, 1},
		{"what is gone lingers", time.Second, []string{"a"}, nil, []string{"a", "b"}, 1},
		{"and is as it was when it is back", time.Second, []string{"b", "a"}, at(1), []string{"a", "b"}, 1},
		{"gone again", time.Second, []string{"a"}, nil, []string{"a", "b"}, 1},
		{"not for long enough", lingers - time.Second, nil, nil, []string{"a", "b"}, 1},
		{"for long enough", time.Second, nil, nil, []string{"a"}, 0},
		{"what is new", time.Second, []string{"a", "b"}, at(1), []string{"a", "b"}, 1},
		{"another port", time.Second, []string{"a", "b"}, at(2), []string{"a", "b"}, 2},
		{"and another", time.Second, []string{"a", "b"}, at(3), []string{"a", "b"}, 3},
		{"and another again", time.Second, []string{"a", "b"}, at(4), []string{"a", "b"}, 4},
		{"and one too often", time.Second, []string{"a", "b"}, at(5), []string{"a", "b"}, 4},
		{"which is not forgotten", followEvery, nil, nil, []string{"a", "b"}, 5},
		{"nothing more", time.Hour, []string{}, nil, []string{"a", "b"}, 5},
		{"for a minute", lingers, nil, nil, nil, 0},
	} {
		now = now.Add(c.after)
		if c.offers != nil {
			o.hear("edge", auth.Hello{Offers: c.offers, Ports: c.ports}, now)
		} else {
			o.turn("edge", now)
		}
		if got, ports, ok := o.get("edge"); !ok || !slices.Equal(got, c.want) || ports["b"].First != c.port {
			t.Errorf("%s: offered are %v, b at %d, want %v, at %d", c.what, got, ports["b"].First, c.want, c.port)
		}
	}
	o.drop("edge")
	if services, _, ok := o.get("edge"); ok {
		t.Errorf("offered by nobody: %v", services)
	}
}

// However a peer flaps, objects are written a few times and then once a minute.
func TestAFlappingPeerDoesNotSetThePace(t *testing.T) {
	var o following
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	changes := 0
	last := uint16(0)
	for i := range 600 {
		now = now.Add(time.Second)
		o.hear("edge", auth.Hello{Offers: []string{"b"}, Ports: map[string]uint16{"b": uint16(i + 1)}}, now)
		if _, ports, _ := o.get("edge"); ports["b"].First != last {
			last = ports["b"].First
			changes++
		}
	}
	if most := 1 + followAtOnce + 10; changes > most || changes < 10 {
		t.Errorf("followed %d times in ten minutes, want %d at most", changes, most)
	}
}

func TestTooManyServicesAreComplainedOfOnce(t *testing.T) {
	var o following
	var offers []string
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	var told []int
	for i := range 20 {
		offers = append(offers, fmt.Sprintf("s%02d", i))
		now = now.Add(time.Hour)
		if n := o.hear("edge", auth.Hello{Offers: offers}, now); n > 0 {
			told = append(told, n)
		}
	}
	if !slices.Equal(told, []int{1}) {
		t.Errorf("complained of %v, want once of one too many", told)
	}
}
