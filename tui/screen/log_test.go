package screen

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// chatty has logged n records, one a second, the last at noon. Every tenth is an error.
func chatty(n int) *fake {
	f := busy()
	f.log.Records = nil
	for i := 1; i <= n; i++ {
		r := api.LogRecord{
			Seq: uint64(i), Time: noon.Add(time.Duration(i-n) * time.Second), Level: "INFO", Message: fmt.Sprintf("record %d", i),
			Attrs: []api.LogAttr{{Key: "peer", Value: "cloud"}},
		}
		switch {
		case i%10 == 0:
			r.Level, r.Message = "ERROR", fmt.Sprintf("record %d failed", i)
			r.Attrs = append(r.Attrs, api.LogAttr{Key: "err", Value: "dial 198.51.100.7:51820: connection refused, and this text goes on so long that it takes more than one line"})
		case i%5 == 0:
			r.Level, r.Message = "WARN", "hostile\x1b[2J\u202e text\nand a line"
		case i%2 == 0:
			r.Level = "DEBUG-2"
		}
		f.log.Records = append(f.log.Records, r)
	}
	return f
}

func logged(t *testing.T, width, height int, color bool) *stage {
	t.Helper()
	return play(t, chatty(100), width, height, color).press("6")
}

func TestPicturesOfTheLog(t *testing.T) {
	everySize(t, "log-still", logged, "L", "k", "k", "k", "z", "w")
}

// records returns the numbers of the first and the last record on the screen.
func records(s *stage) (first, last string) {
	for line := range strings.Lines(ansi.Strip(s.View())) {
		if _, rest, ok := strings.Cut(line, " record "); ok {
			n := strings.Fields(rest)[0]
			if first == "" {
				first = n
			}
			last = n
		}
	}
	return first, last
}

func TestTheLogFollowsTheNewest(t *testing.T) {
	s := logged(t, 80, 24, false)
	if _, last := records(s); last != "100" {
		t.Fatalf("the last record is %s", last)
	}
	s.gateway.log.Records = append(s.gateway.log.Records, api.LogRecord{Seq: 101, Time: noon, Level: "INFO", Message: "record 101"})
	if _, last := records(s.pass(time.Second)); last != "101" {
		t.Errorf("after a new record the last is %s", last)
	}
}

func TestALogThatIsReadStandsStill(t *testing.T) {
	s := logged(t, 80, 24, false).press("k", "k", "k")
	before, _ := records(s)
	if !strings.Contains(s.View(), "not following") {
		t.Errorf("the view does not say that it stands still:\n%s", s.View())
	}
	for i := range 50 {
		s.gateway.log.Records = append(s.gateway.log.Records, api.LogRecord{Seq: uint64(101 + i), Time: noon, Level: "INFO", Message: fmt.Sprintf("record %d", 101+i)})
	}
	if after, _ := records(s.pass(time.Second)); after != before {
		t.Errorf("new records moved the view from %s to %s", before, after)
	}
	if _, last := records(s.press("G")); last != "150" || strings.Contains(s.View(), "not following") {
		t.Errorf("G leads to %s", last)
	}
	if first, _ := records(s.press("g")); first != "1" {
		t.Errorf("g leads to %s", first)
	}
	s.press("f")
	if _, last := records(s); last != "150" {
		t.Errorf("f leads to %s", last)
	}
	before, _ = records(s.press("f"))
	s.gateway.log.Records = append(s.gateway.log.Records, api.LogRecord{Seq: 151, Time: noon, Level: "INFO", Message: "record 151"})
	if after, _ := records(s.pass(time.Second)); after != before {
		t.Errorf("f does not stop: from %s to %s", before, after)
	}
}

func TestLogLevels(t *testing.T) {
	s := logged(t, 80, 24, false)
	v := s.views[5].(*logTail)
	for _, step := range []struct {
		key  string
		want int
		says string
	}{
		{"", 60, "info and above"}, {"l", 20, "warnings and errors"}, {"l", 10, "errors"}, {"l", 10, "errors"},
		{"L", 20, "warnings and errors"}, {"L", 60, "info and above"}, {"L", 100, "all levels"}, {"L", 100, "all levels"},
	} {
		if step.key != "" {
			s.press(step.key)
		}
		if got := len(v.shown(s.data)); got != step.want || !strings.Contains(s.View(), step.says) {
			t.Errorf("after %q: %d records, want %d with %q", step.key, got, step.want, step.says)
		}
	}
}

func TestLogFilter(t *testing.T) {
	s := logged(t, 80, 24, false)
	v := s.views[5].(*logTail)
	for filter, want := range map[string]int{"refused": 10, "!peer=cloud": 0, "PEER=CLOUD": 60, "err=": 10, "!err=": 50, "warn": 10} {
		s.press("esc").typed("/" + filter).press("enter")
		if got := len(v.shown(s.data)); got != want {
			t.Errorf("%q picks %d records, want %d", filter, got, want)
		}
	}
	s.press("esc").typed("/nowhere").press("enter")
	if !strings.Contains(s.View(), "no record fits the filter nowhere") {
		t.Errorf("the view does not say why it is empty:\n%s", s.View())
	}
}

func TestALongRecordIsWrappedOrCut(t *testing.T) {
	s := logged(t, 60, 24, false)
	if !strings.Contains(s.View(), "more than one line\"") {
		t.Errorf("the end of a long record is missing:\n%s", s.View())
	}
	s.press("z")
	if picture := s.View(); strings.Contains(picture, "more than one line") || !strings.Contains(picture, "…") {
		t.Errorf("long records are not cut:\n%s", picture)
	}
}

// TestARecordLongerThanTheScreen ends with the record's end, as a tail does.
func TestARecordLongerThanTheScreen(t *testing.T) {
	f := chatty(3)
	f.log.Records[2].Message = strings.Repeat("word ", 400) + "end"
	s := play(t, f, 40, 15, false).press("6")
	if !strings.Contains(s.View(), "end peer=cloud") {
		t.Errorf("the end is not shown:\n%s", s.View())
	}
	fits(t, s.View(), 40, 15)
}

func TestALogThatCannotBeReadSaysSo(t *testing.T) {
	s := play(t, chatty(0), 80, 24, false).press("6")
	if !strings.Contains(s.View(), "nothing was logged yet") {
		t.Errorf("an empty log is not named:\n%s", s.View())
	}
	s.data.logErr = errors.New("not \x1bsupported")
	picture := s.View()
	fits(t, picture, 80, 24)
	if !strings.Contains(picture, "no new records: not �supported") {
		t.Errorf("the error is not shown:\n%s", picture)
	}
}

func TestValuesOfTheLogAreQuoted(t *testing.T) {
	for in, want := range map[string]string{"plain": "plain", "": `""`, "two words": `"two words"`, "a\x1b b": `"a\x1b b"`, "k=v": `"k=v"`} {
		if got := quoted(in); got != want {
			t.Errorf("quoted(%q) = %s, want %s", in, got, want)
		}
	}
}

// Warnings that a neighbour or a peer can cause at no cost do not push the alarm about a stolen
// ticket off the screen.
func TestCheapWarningsDoNotHideATicketAlarm(t *testing.T) {
	f := chatty(100)
	f.log.Alarms = append(f.log.Alarms, api.Alarm{Code: "PST0210", Subject: "ticket 0011", Event: api.EventAlarm, First: noon, Count: 1})
	for i := range maxAlarms + 1 {
		f.log.Alarms = append(f.log.Alarms, api.Alarm{Code: "PST0433", Subject: fmt.Sprintf("name n%d", i), First: noon, Count: 2})
	}
	view := play(t, f, 80, 24, false).press("6").View()
	for _, want := range []string{"✗ PST0210 ticket 0011", fmt.Sprintf("! PST0433 name n%d", maxAlarms), "and 2 more"} {
		if !strings.Contains(view, want) {
			t.Errorf("the view lacks %q:\n%s", want, view)
		}
	}
}

func TestAlarmsStayAboveTheLog(t *testing.T) {
	f := chatty(100)
	for i := range 5 {
		f.log.Alarms = append(f.log.Alarms, api.Alarm{Code: fmt.Sprintf("PST030%d", i), Subject: "peer cloud", First: noon, Count: 2,
			Attrs: []api.LogAttr{{Key: "cause", Value: "hostile\x1b[2J"}}})
	}
	f.log.Alarms[4].Event = api.EventAlarm
	s := play(t, f, 80, 24, false).press("6")
	view := s.View()
	for _, want := range []string{"! PST0302", "✗ PST0304 peer cloud, 2 times since 12:00:00: hostile\ufffd", "and 2 more"} {
		if !strings.Contains(view, want) {
			t.Errorf("the view lacks %q:\n%s", want, view)
		}
	}
	if strings.Contains(view, "PST0301") {
		t.Errorf("more than the last alarms are shown:\n%s", view)
	}
	if _, last := records(s); last != "100" {
		t.Errorf("the last record is %s:\n%s", last, view)
	}
	if n := strings.Count(view, "\n"); n > 24 {
		t.Errorf("%d lines are drawn on 24", n)
	}
}
