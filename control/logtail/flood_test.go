package logtail

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/ticket"
)

// clock passes records to a Tail at times set by the test.
type clock struct {
	tail *Tail
	now  time.Time
}

func newClock() *clock {
	return &clock{New(slog.DiscardHandler), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (c *clock) log(l slog.Level, message string, attrs ...slog.Attr) {
	r := slog.NewRecord(c.now, l, message, 0)
	r.AddAttrs(attrs...)
	_ = c.tail.Handle(context.Background(), r)
}

func (c *clock) audit(e audit.Event, attrs ...slog.Attr) {
	l := slog.LevelInfo
	if e == audit.Refuse || e == audit.Alarm {
		l = slog.LevelWarn
	}
	c.log(l, audit.Message, append(attrs, slog.String(audit.KeyEvent, string(e)))...)
}

// written returns the number of records since then, and of those that they report as left out.
func (c *clock) written(after uint64) (records int, unrecorded uint64) {
	for _, r := range c.tail.After(after) {
		records++
		for _, a := range r.Attrs {
			var n uint64
			if _, err := fmt.Sscan(a.Value, &n); a.Key == audit.KeyUnrecorded && err == nil {
				unrecorded += n
			}
		}
	}
	return records, unrecorded
}

// TestAMinuteOfEachFlood causes 500 records a second for a minute, in each possible way. All
// unwritten records must be reported in the end.
func TestAMinuteOfEachFlood(t *testing.T) {
	const perSecond, seconds = 500, 60
	edge := audit.Peer("edge")
	for name, one := range map[string]func(c *clock, i int){
		"connections": func(c *clock, i int) {
			c.audit([]audit.Event{audit.Connect, audit.Disconnect}[i%2], edge, slog.String(audit.KeyAddress, fmt.Sprintf("[fd00::1]:%d", i)))
		},
		"refusals": func(c *clock, i int) { c.audit(audit.Refuse, edge, audit.Reason(fmt.Sprint(i))) },
		"all that a peer can provoke": func(c *clock, i int) {
			c.log([]slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError}[i%3], fmt.Sprint("kind ", i%40), edge)
		},
		"a ticket tried under many names": func(c *clock, i int) {
			c.audit(audit.Refuse, audit.Ticket("0011"), audit.Peer(fmt.Sprint("thief-", i)))
		},
		"an alarm again and again": func(c *clock, i int) {
			c.audit(audit.Alarm, audit.Ticket("0011"), audit.Code(audit.CodeTicketAlarm), audit.Reason(fmt.Sprint(i)))
		},
		"an unknown address": func(c *clock, i int) {
			c.audit(audit.Refuse, audit.Peer(""), slog.String(audit.KeyAddress, fmt.Sprintf("[fd00::1]:%d", i)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			for i := range perSecond * seconds {
				if i%perSecond == 0 {
					if n, _ := c.written(c.aSecondAgo()); n > 20 {
						t.Fatalf("%d records in second %d, want at most 20", n, i/perSecond)
					}
				}
				one(c, i)
				c.now = c.now.Add(time.Second / perSecond)
			}
			c.now = c.now.Add(settleAfter)
			c.tail.Settle(context.Background(), c.now)
			c.tail.Settle(context.Background(), c.now)
			c.tail.Settle(context.Background(), c.now)
			n, unrecorded := c.written(0)
			all := uint64(n) + unrecorded - c.closing()
			if all != perSecond*seconds {
				t.Errorf("%d records tell of %d, want of all %d", n, all, perSecond*seconds)
			}
			if got := c.tail.Unrecorded(); got != unrecorded {
				t.Errorf("%d records are counted as left out, %d reported", got, unrecorded)
			}
			t.Logf("%d records", n)
		})
	}
}

// aSecondAgo returns the number of the last record older than a second.
func (c *clock) aSecondAgo() uint64 {
	last := uint64(0)
	for _, r := range c.tail.After(0) {
		if !r.Time.After(c.now.Add(-time.Second)) {
			last = r.Seq
		}
	}
	return last
}

// closing counts the records that only report records left out.
func (c *clock) closing() (n uint64) {
	for _, r := range c.tail.After(0) {
		if strings.HasPrefix(r.Message, "records were left out") {
			n++
		}
	}
	return n
}

func TestAFloodOfInventedSubjectsIsBounded(t *testing.T) {
	c := newClock()
	for i := range 100_000 {
		c.log(slog.LevelInfo, "gateway found on the local network", slog.String("name", fmt.Sprint("gw-", i)))
		c.now = c.now.Add(time.Millisecond)
	}
	if n, _ := c.written(0); n > 60+100 {
		t.Errorf("%d records in 100 s, want at most 160", n)
	}
	if n := len(c.tail.shared.bound.counts); n > 1000 {
		t.Errorf("%d subjects are remembered, of which most had no record", n)
	}
	// It hides nothing else, and is reported when it is over.
	c.log(slog.LevelInfo, "gateway found in DNS", slog.String("name", "gw-1"))
	c.now = c.now.Add(settleAfter)
	c.tail.Settle(context.Background(), c.now)
	last := c.tail.After(0)
	if len(last) < 2 || last[len(last)-2].Message != "gateway found in DNS" || !strings.HasPrefix(last[len(last)-1].Message, "records were left out") {
		t.Errorf("the log ends in %+v", last[len(last)-2:])
	}
}

// At the end all that was left out is reported, in a bounded number of records.
func TestAtTheEndTheRestIsSummedUp(t *testing.T) {
	const floods, each = 30, 100
	c := newClock()
	for i := range floods {
		for range each {
			c.log(slog.LevelWarn, "it fails", audit.Peer(fmt.Sprint("peer-", i)))
		}
		c.now = c.now.Add(time.Second)
	}
	written, reported := c.written(0)
	c.tail.End(context.Background(), c.now)
	all := c.tail.After(0)
	if n := len(all) - written; n != maxSettled+1 {
		t.Fatalf("%d records at the end, want %d", n, maxSettled+1)
	}
	last := all[len(all)-1]
	if got, want := attr(last.Attrs, "record"), fmt.Sprintf("and %d more", floods-maxSettled); got != want {
		t.Errorf("the last is about %q, want %q", got, want)
	}
	if _, now := c.written(0); uint64(written)+now != floods*each {
		t.Errorf("%d written and %d reported as left out (%d before the end), want %d in all", written, now, reported, floods*each)
	}
}

func TestTheMemoryForCountingIsBounded(t *testing.T) {
	c := newClock()
	for i := range 3 * maxCounted {
		c.log(slog.LevelWarn, fmt.Sprint("message ", i), audit.Peer(fmt.Sprint("peer-", i)))
	}
	if n := len(c.tail.shared.bound.counts); n > maxCounted+1 {
		t.Errorf("%d are counted, want at most %d", n, maxCounted)
	}
	c.now = c.now.Add(time.Hour) // all have their full rate again, and make room
	c.log(slog.LevelWarn, "new", audit.Peer("new"))
	if r := c.tail.After(0); r[len(r)-1].Message != "new" {
		t.Error("after a flood nothing is written any more")
	}
}

func TestOnePeersFloodHidesNobodyElse(t *testing.T) {
	c := newClock()
	for range 10_000 {
		c.audit(audit.Connect, audit.Peer("mallory"))
	}
	before := c.tail.shared.ring.seq
	c.audit(audit.Connect, audit.Peer("edge"))
	c.audit(audit.Issue, audit.Peer("mallory"))
	c.audit(audit.Grant, audit.Peer("mallory"))
	c.log(slog.LevelWarn, "the configuration was not applied")
	if n, _ := c.written(before); n != 4 {
		t.Errorf("%d of another peer's record, two decisions and the gateway's own record were written, want all 4", n)
	}
}

// What a peer is refused right after it connected is recorded beside the records of that.
func TestTheFirstRefusalsOfAPeerAreRecorded(t *testing.T) {
	c := newClock()
	for i := range 10 {
		c.log(slog.LevelInfo, fmt.Sprint("message ", i), audit.Peer("edge"))
	}
	for range 4 {
		c.audit(audit.Refuse, audit.Peer("edge"))
	}
	if n, _ := c.written(0); n != 14 {
		t.Errorf("%d of 14 records were written", n)
	}
}

func TestDecisionsAreNeverLeftOut(t *testing.T) {
	for _, e := range []audit.Event{audit.Invite, audit.Redeem, audit.Accept, audit.Approve, audit.Expire, audit.Burn,
		audit.Grant, audit.Issue, audit.Revoke, audit.Remove, audit.Reload, audit.Rotate} {
		c := newClock()
		for range 200 {
			c.audit(e, audit.Peer("edge"), audit.Ticket("0011"))
		}
		if n, _ := c.written(0); n != 200 {
			t.Errorf("%d of 200 records of %s were written", n, e)
		}
	}
}

func TestAFewConnectionsAreAllRecorded(t *testing.T) {
	c := newClock()
	for range 60 { // one a second, as from a script
		c.audit(audit.Connect, audit.Peer("edge"))
		c.audit(audit.Disconnect, audit.Peer("edge"))
		c.now = c.now.Add(time.Second)
	}
	if n, unrecorded := c.written(0); n != 120 || unrecorded != 0 {
		t.Errorf("%d of 120 records were written, %d left out", n, unrecorded)
	}
}

func TestAnAlarmIsNotWashedAway(t *testing.T) {
	c := newClock()
	for range 100 {
		c.audit(audit.Refuse, audit.Ticket("0011"))
	}
	c.audit(audit.Alarm, audit.Ticket("0011"), audit.Code(audit.CodeTicketAlarm), audit.PublicKey([32]byte{1}))
	if r := c.tail.After(0); len(r) == 0 || r[len(r)-1].Attrs[len(r[len(r)-1].Attrs)-1].Value != string(audit.Alarm) {
		t.Error("the first record of the alarm was left out of the log")
	}
	first := c.now
	for i := range 10_000 {
		c.now = c.now.Add(time.Second)
		c.audit(audit.Alarm, audit.Ticket("0011"), audit.Code(audit.CodeTicketAlarm), audit.PublicKey([32]byte{2, byte(i)}))
		c.log(slog.LevelInfo, fmt.Sprint("message ", i))
	}
	got := c.tail.Alarms()
	if len(got) != 1 || got[0].Code != audit.CodeTicketAlarm || got[0].Subject != "ticket 0011" || got[0].Count != 10_001 ||
		!got[0].First.Equal(first) || !got[0].Last.Equal(c.now) || attr(got[0].Attrs, audit.KeyPublicKey)[:2] != "AQ" {
		t.Errorf("got %+v", got)
	}
}

// Each ticket that a book stores can have an alarm, and none hides another. Other warnings with
// the same code do not take their places.
func TestEachTicketKeepsItsAlarm(t *testing.T) {
	const tickets = ticket.MaxOpen + ticket.MaxRemembered
	c := newClock()
	for i := range 2 * maxPerCode {
		c.log(slog.LevelWarn, "a warning", slog.String("name", fmt.Sprint("gw-", i)), audit.Code(audit.CodeTicketAlarm))
	}
	raise := func(n int) {
		for i := range n {
			c.audit(audit.Alarm, audit.Ticket(fmt.Sprintf("%04x", i)), audit.Code(audit.CodeTicketAlarm))
		}
	}
	raise(tickets)
	raise(tickets)
	n := 0
	for _, a := range c.tail.Alarms() {
		if strings.HasPrefix(a.Subject, "ticket ") && a.Count == 2 && a.Event == api.EventAlarm && "ticket "+attr(a.Attrs, audit.KeyTicket) == a.Subject {
			n++
		}
	}
	if n != tickets {
		t.Errorf("%d of %d tickets have their alarm", n, tickets)
	}
	raise(maxDecided + 100)
	if n := len(c.tail.Alarms()); n > maxDecided+1 {
		t.Errorf("%d alarms are kept, want at most %d", n, maxDecided+1)
	}
}

func attr(attrs []api.LogAttr, key string) string {
	for _, a := range attrs {
		if a.Key == key {
			return a.Value
		}
	}
	return ""
}

func TestDifferentAlarmsWithoutEndAreBounded(t *testing.T) {
	c := newClock()
	c.log(slog.LevelWarn, "a relay cannot be used", audit.Code("PST0410"))
	for i := range 100_000 {
		c.log(slog.LevelWarn, "what a gateway announces cannot be used", slog.String("name", fmt.Sprint("gw-", i)), audit.Code("PST0431"))
	}
	for i := range 2 * maxCodes {
		c.log(slog.LevelWarn, "no code of ours", audit.Code(fmt.Sprint("PST", i)))
	}
	all, sum := c.tail.Alarms(), uint64(0)
	for _, a := range all {
		sum += a.Count
	}
	if want := uint64(100_001 + 2*maxCodes); sum != want {
		t.Errorf("%d alarms are counted, want %d", sum, want)
	}
	if most := maxPerCode + 1 + maxCodes + 1; len(all) > most {
		t.Errorf("%d alarms are kept, want at most %d", len(all), most)
	}
	// An hour later others can take their places.
	c.now = c.now.Add(2 * staleAfter)
	c.log(slog.LevelWarn, "what a gateway announces cannot be used", slog.String("name", "late"), audit.Code("PST0431"))
	all = c.tail.Alarms()
	if last := all[len(all)-1]; last.Subject != "name late" {
		t.Errorf("the last alarm is %+v", last)
	}
}

func TestSubjectsAreFoundInWhatALoggerWasGiven(t *testing.T) {
	c := newClock()
	log := slog.New(c.tail).With("peer", "edge")
	for range 100 {
		log.Warn("it fails", "code", "PST0101")
	}
	if n, _ := c.written(0); n > 20 {
		t.Errorf("%d records of one peer were written", n)
	}
	if got := c.tail.Alarms(); len(got) != 1 || got[0].Subject != "peer edge" || got[0].Count != 100 {
		t.Errorf("the alarms are %+v", got)
	}
}

func TestDebugCostsNothingWhenItIsOff(t *testing.T) {
	c := newClock()
	log, ctx := slog.New(c.tail), context.Background()
	if n := testing.AllocsPerRun(100, func() { log.LogAttrs(ctx, slog.LevelDebug, "message") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLeftOut(b *testing.B) {
	log, ctx := audit.New(slog.New(New(slog.DiscardHandler))), context.Background()
	for b.Loop() {
		log.Record(ctx, audit.Refuse, audit.Peer("edge"), audit.Reason("because"))
	}
}
