// Package patience bounds how long tests wait for what must happen. A busy machine is not a
// failure, so they wait as long as go test lets their package run (-timeout), and report what is
// missing before that ends the process.
package patience

import (
	"flag"
	"time"
)

const (
	// spare is left for reporting what is missing and for cleaning up.
	spare = 30 * time.Second
	// least is for the tests after one that waited until the end, so that they do not fail with it.
	least = 5 * time.Second
	// most is for runs without a -timeout, and for the virtual time of synctest.
	most = time.Hour
)

// started is when the test process did, without the monotonic clock, which a synctest bubble does not
// share.
var started = time.Now().Round(0)

// Left returns how long a test may still wait: at least 5 s.
func Left() time.Duration {
	var timeout time.Duration
	if f := flag.Lookup("test.timeout"); f != nil {
		timeout, _ = f.Value.(flag.Getter).Get().(time.Duration)
	}
	return left(timeout, time.Now())
}

func left(timeout time.Duration, now time.Time) time.Duration {
	if timeout == 0 {
		return most
	}
	return min(max(least, started.Add(timeout-spare).Sub(now)), most)
}
