package relay

import (
	"strconv"
	"strings"
	"time"
)

// Expiry returns when credentials of the TURN REST scheme expire: their username is "expiry:user"
// or the expiry alone, in seconds since 1970 (draft-uberti-behave-turn-rest-00 §2.2). It returns
// false for other usernames, whose credentials do not expire and must not leave this gateway.
func Expiry(username string) (time.Time, bool) {
	digits, _, _ := strings.Cut(username, ":")
	if len(digits) != 10 || strings.Trim(digits, "0123456789") != "" {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	// Ten digits are the years 2001 to 2286; anything before this code was written is an account
	// number.
	if t := time.Unix(seconds, 0); seconds >= 1_500_000_000 {
		return t, true
	}
	return time.Time{}, false
}
