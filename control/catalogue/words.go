package catalogue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// How quantities, lists and addresses are written in sentences.

// words are the functions that templates may call: the necessary ones of text/template, and our
// own.
var words = map[string]any{
	"or": firstTrue, "and": firstFalse, "not": func(v ...any) any { return !truth(v[0]) },
	"eq": compared(func(order int) bool { return order == 0 }), "ne": compared(func(order int) bool { return order != 0 }),
	"lt": compared(func(order int) bool { return order < 0 }), "le": compared(func(order int) bool { return order <= 0 }),
	"print": func(v ...any) any { return fmt.Sprint(v...) }, "quote": strconv.Quote,
	"max": func(a, b int) int { return max(a, b) },

	"seconds": Seconds, "precise": Precise, "tenths": tenths, "day": day, "bytes": Bytes, "rate": Rate, "list": List, "first": first,
	"wait": Wait, "several": func(v []string) bool { return len(v) > 1 }, "distance": time.Duration.Abs, "natWords": natWords,
	"port": portOf, "endpoint": endpoint, "letIn": letIn, "letOut": letOut, "tcpOut": tcpOut, "tcpIn": tcpIn, "inRule": inRule, "inGroup": inGroup,
}

// Settled is how long a silence lasts until its cause is known. By then the path to a peer is given
// up, and a restarted gateway is back.
const Settled = 10 * time.Second

// Wait returns the instruction to wait that long.
func Wait() string { return fmt.Sprintf("wait %d s", Settled/time.Second) }

// Seconds formats a duration in whole seconds, or in milliseconds below one.
func Seconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// tenths formats a duration to a tenth of a second, or to the millisecond below one.
func tenths(d time.Duration) string {
	if d < time.Second {
		return Seconds(d)
	}
	return d.Round(100 * time.Millisecond).String()
}

// Precise formats a round trip or a jitter.
func Precise(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// day formats a time for a sentence, in UTC because the two sides may differ; "" for the zero time.
func day(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// Bytes formats a size as in configuration files.
func Bytes(n uint64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// Rate formats bytes per second in bits, as usual for links.
func Rate(bytesPerSecond float64) string {
	switch bits := bytesPerSecond * 8; {
	case bits >= 999.5e6:
		return fmt.Sprintf("%.2f Gbit/s", bits/1e9)
	case bits >= 9.95e6:
		return fmt.Sprintf("%.0f Mbit/s", bits/1e6)
	case bits >= 999.5e3:
		return fmt.Sprintf("%.1f Mbit/s", bits/1e6)
	default:
		return fmt.Sprintf("%.0f kbit/s", bits/1e3)
	}
}

// Seen returns the figures that connections have measured of a path, or "" if there are none.
func Seen(t *api.Traffic) string {
	if t == nil || t.BytesPerSecond == 0 {
		return ""
	}
	seconds := func(s float64) string { return Precise(time.Duration(s * float64(time.Second))) }
	out := "up to " + Rate(t.BytesPerSecond)
	if t.PolicedBytesPerSecond > 0 {
		out += ", rate limiter at " + Rate(t.PolicedBytesPerSecond)
	}
	if t.BaseRTTSeconds > 0 {
		out += fmt.Sprintf(", round trip %s (%s without a queue)", seconds(t.RTTSeconds), seconds(t.BaseRTTSeconds))
	}
	if t.LossKnown() {
		out += fmt.Sprintf(", %.2f%% lost and %.2f%% in queues", 100*t.LossRatio, 100*t.QueueLossRatio)
	}
	if t.LimitedBy != "" {
		return out + ", limited by " + t.LimitedBy
	}
	return out + ", idle for " + Seconds(time.Duration(t.IdleSeconds*float64(time.Second)))
}

// List joins at most four values.
func List(v []string) string {
	const most = 4
	if len(v) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(v[:most], ", "), len(v)-most)
	}
	return strings.Join(v, ", ")
}

func first(v []string) string {
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

// natWords describes a NAT.
func natWords(n NAT) string {
	switch n.Mapping {
	case "", "unknown":
		return "a NAT that is not known"
	case "none":
		return "no NAT"
	case "endpoint-independent":
		if n.Filtering == "" || n.Filtering == "unknown" {
			return "a NAT with one mapping for all"
		}
		return "a NAT with " + n.Filtering + " filtering"
	}
	return "a NAT with " + n.Mapping + " mapping (symmetric)"
}

// or returns s, or other if s is empty.
func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
