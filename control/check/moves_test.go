package check

import (
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

func TestAMoveIsAnAddressLostAndANewOne(t *testing.T) {
	const a, b, c = "203.0.113.8:51820", "203.0.113.9:51820", "[2001:db8::1]:51820"
	for _, x := range []struct {
		name string
		seen [][]string // one list a minute
		was  []string
		now  []string
	}{
		{"none", [][]string{{a}, {a}}, nil, nil},
		{"another one", [][]string{{a}, {b}}, []string{"203.0.113.8"}, []string{"203.0.113.9"}},
		{"another one after a time without any", [][]string{{a}, {}, {b}}, []string{"203.0.113.8"}, []string{"203.0.113.9"}},
		{"one more", [][]string{{a}, {a, c}}, nil, nil},
		{"one less", [][]string{{a, c}, {a}}, nil, nil},
		{"another port", [][]string{{a}, {"203.0.113.8:4711"}}, nil, nil},
		{"a private one", [][]string{{"192.168.1.2:51820"}, {"192.168.1.3:51820"}}, nil, nil},
		{"two in turn", [][]string{{a, b}, {a}, {b}, {a}}, nil, nil},
	} {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		var m moves
		var got Move
		for _, list := range x.seen {
			var s catalogue.Shown
			for _, at := range list {
				s.Candidates = append(s.Candidates, catalogue.Candidate{Address: at, Source: api.SourceSTUN})
			}
			now = now.Add(time.Minute)
			got = m.see(s, now)
		}
		if !slices.Equal(got.Was, x.was) || !slices.Equal(got.Now, x.now) || got.At.IsZero() != (x.was == nil) {
			t.Errorf("%s: got %+v", x.name, got)
		}
	}
}
