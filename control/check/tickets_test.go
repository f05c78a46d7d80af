package check

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

func TestATicketAlarmIsShownForAnHour(t *testing.T) {
	for _, c := range []struct {
		name  string
		ago   time.Duration // 0: never
		peer  string
		want  api.Outcome
		cause string
	}{
		{"never", 0, "", api.OK, ""},
		{"a moment ago", time.Nanosecond, "cloud", api.Warning, "the ticket with which cloud joined was tried again by another key"},
		{"within the hour", 59 * time.Minute, "cloud", api.Warning, "59m0s ago"},
		{"by nobody that is known", 10 * time.Minute, "", api.Warning, "the ticket with which a peer joined"},
		{"an hour ago", time.Hour, "cloud", api.OK, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at time.Time
				if c.ago > 0 {
					at = time.Now().Add(-c.ago)
				}
				r := Tickets(at, c.peer)
				v := r.Verdict()
				if r.Name != NameTickets || v.Verdict != c.want || !strings.Contains(v.Cause, c.cause) {
					t.Errorf("got %s: %s %s, want %s: %s with %q", r.Name, v.Verdict, v.Cause, NameTickets, c.want, c.cause)
				}
				if c.want == api.Warning && (v.Code != string(catalogue.TicketAlarm) || !strings.Contains(v.Fix, "`postern peer remove ")) {
					t.Errorf("got the code %s and the fix %q", v.Code, v.Fix)
				}
			})
		})
	}
}
