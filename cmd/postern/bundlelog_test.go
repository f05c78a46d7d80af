package main

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

func TestTheBundlesLogBeginsWithTheAlarms(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got := string(logText(api.Log{
		Alarms: []api.Alarm{{Code: "PST0210", Subject: "ticket 0011", First: at, Last: at.Add(time.Hour), Count: 12, Message: "audit",
			Attrs: []api.LogAttr{{Key: "reason", Value: "a second key\x1b[2J\ntried it"}}}},
		Records: []api.LogRecord{{Time: at, Level: "INFO", Message: "gateway is up"}},
	}))
	want := "2026-01-02T04:04:05.000Z ALARM PST0210 ticket 0011, 12 times since 2026-01-02 03:04:05: a second key\ufffd[2J\ufffdtried it\n" +
		"2026-01-02T03:04:05.000Z INFO  gateway is up\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", strings.ToValidUTF8(got, "?"), want)
	}
}
