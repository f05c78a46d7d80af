// Package epoch is the time of what is made for a release, so that it can be reproduced:
// https://reproducible-builds.org/specs/source-date-epoch/.
package epoch

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Time is SOURCE_DATE_EPOCH of the environment, seconds since 1970, in UTC; without it 1970-01-01.
func Time() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is no number of seconds", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
