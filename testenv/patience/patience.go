// Package patience bounds how long tests wait for what must happen. A busy machine is not a
// failure, so a test waits as long as go test lets its package run (-timeout), and reports what is
// missing before that ends the process. Tests in a synctest bubble have no use for it.
package patience

import (
	"testing"
	"time"
)

const (
	// spare is left for reporting what is missing and for cleaning up.
	spare = 30 * time.Second
	// endless is for runs without a -timeout, and for benchmarks.
	endless = 24 * time.Hour
)

// Left returns how long the test may still wait. It is not negative.
func Left(t testing.TB) time.Duration {
	if t, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := t.Deadline(); ok {
			return max(0, time.Until(end)-spare)
		}
	}
	return endless
}
