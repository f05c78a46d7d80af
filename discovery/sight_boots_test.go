package discovery

import (
	"slices"
	"testing"
	"time"
)

// Boot ids grow with every start. One that comes back is only reported if it cannot be a
// straggler of the earlier run.
func TestBootsThatComeBack(t *testing.T) {
	type seen struct {
		after time.Duration // since the one before
		boot  uint64
	}
	const hour = time.Hour
	for name, c := range map[string]struct {
		seen []seen
		want []uint64
	}{
		"a restart":                       {[]seen{{0, 5}, {hour, 6}, {time.Minute, 6}}, []uint64{5, 6}},
		"one under way":                   {[]seen{{0, 5}, {hour, 6}, {9 * time.Second, 5}, {time.Second, 6}}, []uint64{5, 6}},
		"one held up":                     {[]seen{{0, 5}, {hour, 6}, {11 * time.Second, 5}, {time.Second, 6}}, []uint64{5, 6}},
		"some held up":                    {[]seen{{0, 5}, {hour, 6}, {11 * time.Second, 5}, {time.Second, 5}, {time.Second, 6}, {900 * time.Millisecond, 5}}, []uint64{5, 6}},
		"one that asks on":                {[]seen{{0, 5}, {hour, 6}, {6 * time.Second, 5}, {4 * time.Second, 5}, {3 * time.Second, 5}}, []uint64{5, 6, 5}},
		"one of each of two lives":        {[]seen{{0, 5}, {hour, 6}, {time.Minute, 7}, {time.Minute, 5}, {time.Minute, 6}}, []uint64{5, 6, 7}},
		"one in an hour":                  {[]seen{{0, 5}, {hour, 6}, {hour, 5}, {hour, 5}, {hour, 5}}, []uint64{5, 6}},
		"two that take turns":             {[]seen{{0, 5}, {hour, 6}, {20 * time.Second, 5}, {5 * time.Second, 6}, {20 * time.Second, 5}}, []uint64{5, 6, 5}},
		"two that go on to":               {[]seen{{0, 5}, {hour, 6}, {20 * time.Second, 5}, {20 * time.Second, 5}, {20 * time.Second, 6}, {20 * time.Second, 5}, {8 * time.Minute, 6}, {20 * time.Second, 5}}, []uint64{5, 6, 5, 6, 5, 6, 5}},
		"three that take turns":           {[]seen{{0, 5}, {hour, 6}, {20 * time.Second, 7}, {20 * time.Second, 5}, {1, 6}, {20 * time.Second, 5}, {1, 6}}, []uint64{5, 6, 7, 5, 6}},
		"a restart with a clock set back": {[]seen{{0, 6}, {hour, 5}, {11 * time.Second, 5}}, []uint64{6, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			var s sight
			now := time.Unix(1_800_000_000, 0)
			for _, b := range c.seen {
				now = now.Add(b.after)
				s.booted(now, b.boot)
			}
			if !slices.Equal(s.boots, c.want) {
				t.Errorf("got %v, want %v", s.boots, c.want)
			}
			if len(s.boots) != len(s.bootsAt) || !slices.IsSortedFunc(s.bootsAt, time.Time.Compare) {
				t.Errorf("they were first seen at %v", s.bootsAt)
			}
		})
	}
}

func TestEarlierBootsAreBounded(t *testing.T) {
	var s sight
	now := time.Unix(1_800_000_000, 0)
	s.booted(now, 1<<40)
	now = now.Add(time.Hour)
	for boot := range uint64(1000) {
		s.booted(now, boot+1)
	}
	if len(s.back) > maxBoots || !slices.Equal(s.boots, []uint64{1 << 40}) {
		t.Errorf("%d are remembered besides %v, want at most %d", len(s.back), s.boots, maxBoots)
	}
}
