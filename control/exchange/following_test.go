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
		offers []string
		ports  map[string]uint16
		want   []string
		port   uint16 // of b
	}{
		{"the first", 0, []string{"b", "a"}, at(1), []string{"a", "b"}, 1},
		{"a change", time.Second, []string{"a"}, nil, []string{"a"}, 0},
		{"another too soon", time.Second, []string{"b"}, at(1), []string{"a"}, 0},
		{"back again", time.Second, []string{"a"}, nil, []string{"a"}, 0},
		{"too soon still", 50 * time.Second, []string{"b"}, at(1), []string{"a"}, 0},
		{"heard again a minute after", 8 * time.Second, []string{"b"}, at(1), []string{"b"}, 1},
		{"another port, too soon", time.Second, []string{"b"}, at(2), []string{"b"}, 1},
		{"another port", time.Minute, []string{"b"}, at(2), []string{"b"}, 2},
		{"and too soon", time.Second, nil, nil, []string{"b"}, 2},
		{"nothing more", time.Hour, nil, nil, nil, 0},
	} {
		now = now.Add(c.after)
		o.hear("edge", auth.Hello{Offers: c.offers, Ports: c.ports}, now)
		if got, ports, ok := o.get("edge"); !ok || !slices.Equal(got, c.want) || ports["b"].First != c.port {
			t.Errorf("%s: offered are %v, b at %d, want %v, at %d", c.what, got, ports["b"].First, c.want, c.port)
		}
	}
	o.drop("edge")
	if services, _, ok := o.get("edge"); ok {
		t.Errorf("offered by nobody: %v", services)
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
