package paths

import (
	"math"
	"testing"
	"time"
)

func TestAPeerCannotTellOfAStartInTheFuture(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	at := uint64(now.UnixMilli())
	for name, c := range map[string]struct {
		boot, own uint64
		now       time.Time
		want      bool
	}{
		"none":                            {0, at - 60, now, false},
		"our own":                         {at - 60, at - 60, now, false},
		"an earlier one":                  {at - 90, at - 60, now, false},
		"weeks after our own":             {at, at - 30*86400_000, now, true},
		"by a clock that is ahead":        {at + 900_000, at - 60, now, true},
		"of the future":                   {at + 1_000_001, at - 60, now, false},
		"of no time":                      {math.MaxUint64, at - 60, now, false},
		"the next, the clock is set back": {at + 1, at, time.Unix(3, 0), true},
		"far on, the clock is set back":   {at + 1_000_001, at, time.Unix(-5, 0), false},
	} {
		if got := credible(c.boot, c.own, c.now); got != c.want {
			t.Errorf("%s: credible(%d, %d) = %v, want %v", name, c.boot, c.own, got, c.want)
		}
	}
}
