package load

import (
	"os"
	"testing"
	"time"
)

func TestParseStatus(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       usage
	}{
		{"as the kernel writes it", "Name:\tbench\nVmPeak:\t  99999 kB\nVmHWM:\t  102400 kB\nVmRSS:\t   90000 kB\nRssAnon:\t   81920 kB\nRssFile:\t 100 kB\n", usage{peak: 100 << 20, anon: 80 << 20}},
		{"a kernel without RssAnon (before 4.5)", "VmHWM:\t1 kB\n", usage{peak: 1024}},
		{"a number that is none", "VmHWM:\tmuch kB\nRssAnon:\t2 kB\n", usage{anon: 2048}},
		{"nothing", "", usage{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parseStatus([]byte(c.text)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		name, text   string
		user, system time.Duration
	}{
		{"a name with a blank and a bracket", "7 (go) x) S 1 7 7 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 9 0 1 2 3", 1500 * time.Millisecond, 250 * time.Millisecond},
		{"too short", "7 (x) S 1 7", 0, 0},
		{"no numbers", "7 (x) S 1 7 7 0 -1 4194560 1 0 0 0 a b 0", 0, 0},
		{"nothing", "", 0, 0},
	} {
		if user, system := parseStat([]byte(c.text)); user != c.user || system != c.system {
			t.Errorf("%s: got %s and %s, want %s and %s", c.name, user, system, c.user, c.system)
		}
	}
}

// The figures of bearers are summed. A missing process counts as zero.
func TestBearersAreSummed(t *testing.T) {
	self := os.Getpid()
	b := &Bearers{Processes: []int{self}}
	one := b.memory()
	b.Processes = []int{self, self, 1 << 30}
	two := b.memory()
	if one.anon == 0 || two.peak < 2*one.peak {
		t.Errorf("got %+v of one, %+v of two, want twice as much", one, two)
	}
	b.Processes = b.Processes[1:]
	for user, system := b.processorTime(); user+system == 0; user, system = b.processorTime() {
		// A tick is 10 ms of processor time.
	}
}

func TestTheProcessKnowsItsCost(t *testing.T) {
	user, system := processorTime()
	if user+system <= 0 {
		t.Errorf("processor time: got %s and %s, want more than nothing", user, system)
	}
	if m := memory(); m.anon == 0 || m.peak < m.anon {
		t.Errorf("memory: got %+v, want a peak of at least the anonymous part, and both above 0", m)
	}
}
