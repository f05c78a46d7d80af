package scale

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// chartWidth is the length of the longest bar, in characters.
const chartWidth = 50

// Report contains the measurements; those not requested are empty.
type Report struct {
	Idle  []Idle  `json:"idle,omitempty"`
	Storm []Storm `json:"storm,omitempty"`
	Flood []Flood `json:"flood,omitempty"`
}

// WriteText writes tables and charts.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	if len(r.Idle) > 0 {
		writeIdle(&b, r.Idle)
	}
	if len(r.Storm) > 0 {
		writeStorm(&b, r.Storm)
	}
	if len(r.Flood) > 0 {
		writeFlood(&b, r.Flood)
	}
	_, err := io.WriteString(w, strings.TrimLeft(b.String(), "\n"))
	return err
}

// table aligns rows in columns separated by two spaces.
func table(b *strings.Builder, rows func(row func(cells ...any))) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	rows(func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, c)
		}
		fmt.Fprintln(t)
	})
	_ = t.Flush() // a strings.Builder never fails
}

// writeIdle writes what the hub costs with each number of peers, and the cost of each peer beyond
// the first number.
func writeIdle(b *strings.Builder, list []Idle) {
	fmt.Fprintln(b, "\nidle peers: what the hub takes")
	table(b, func(row func(...any)) {
		row("peers", "MB anon", "MB", "% of a core", "goroutines", "kB a peer", "ppm a peer", "new peer", "× first", "status")
		for i, x := range list {
			kB, ppm, ratio := "-", "-", "-"
			if i > 0 && x.Peers > list[0].Peers {
				more := float64(x.Peers - list[0].Peers)
				kB = fmt.Sprintf("%.0f", (float64(x.Anon)-float64(list[0].Anon))/more/1e3)
				ppm = fmt.Sprintf("%.0f", 1e6*(x.CPU-list[0].CPU)/more)
			}
			if list[0].Join() > 0 {
				ratio = fmt.Sprintf("%.2f", float64(x.Join())/float64(list[0].Join()))
			}
			row(x.Peers, fmt.Sprintf("%.1f", mb(x.Anon)), fmt.Sprintf("%.1f", mb(x.RSS)), fmt.Sprintf("%.2f", 100*x.CPU), x.Goroutines,
				kB, ppm, short(x.Join()), ratio, short(x.Status))
		}
	})
	chart(b, "MB anon", list, func(x Idle) float64 { return mb(x.Anon) })
	chart(b, "% of a core", list, func(x Idle) float64 { return 100 * x.CPU })
}

// chart draws a bar for each number of peers.
func chart(b *strings.Builder, title string, list []Idle, of func(Idle) float64) {
	greatest := 0.0
	for _, x := range list {
		greatest = max(greatest, of(x))
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, x := range list {
		bar := 0
		if greatest > 0 {
			bar = int(of(x)/greatest*chartWidth + 0.5)
		}
		fmt.Fprintf(b, "%6d %s %.2f\n", x.Peers, strings.Repeat("█", bar), of(x))
	}
}

func writeStorm(b *strings.Builder, list []Storm) {
	fmt.Fprintln(b, "\nrestart of the hub: until its peers are back, from its start")
	table(b, func(row func(...any)) {
		row("peers", "ended by", "first status", "90 % back", "all back", "slowest status", "asked", "CPU", "peak MB anon")
		for _, s := range list {
			by := "SIGTERM"
			if s.Killed {
				by = "SIGKILL"
			}
			row(s.Peers, by, short(s.Answers), short(s.Most), short(s.Back), short(s.Slowest), s.Asked, short(s.CPU), fmt.Sprintf("%.1f", mb(s.PeakAnon)))
		}
	})
}

func writeFlood(b *strings.Builder, list []Flood) {
	fmt.Fprintln(b, "\na download through the hub, flooded with initiations that have a valid mac1")
	table(b, func(row func(...any)) {
		row("from", "sent/s", "alone Gbit/s", "flooded", "kept", "of the rest", "hub's cores alone", "flooded", "sender's", "MB anon alone", "flooded")
		for _, f := range list {
			row(f.Kind, fmt.Sprintf("%.0f", f.Sent), fmt.Sprintf("%.2f", f.Alone/1e9), fmt.Sprintf("%.2f", f.Under/1e9),
				fmt.Sprintf("%.2f", f.Kept()), fmt.Sprintf("%.2f", f.KeptOfRest()),
				fmt.Sprintf("%.2f", f.HubAlone), fmt.Sprintf("%.2f", f.HubUnder), fmt.Sprintf("%.2f", f.Sender),
				fmt.Sprintf("%.1f", mb(f.AnonAlone)), fmt.Sprintf("%.1f", mb(f.AnonUnder)))
		}
	})
}

// short formats a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	default:
		return d.Round(10 * time.Microsecond).String()
	}
}
