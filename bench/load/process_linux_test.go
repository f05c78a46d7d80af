package load

import "testing"

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

func TestTheProcessKnowsItsCost(t *testing.T) {
	user, system := processorTime()
	if user+system <= 0 {
		t.Errorf("processor time: got %s and %s, want more than nothing", user, system)
	}
	if m := memory(); m.anon == 0 || m.peak < m.anon {
		t.Errorf("memory: got %+v, want a peak of at least the anonymous part, and both above 0", m)
	}
}
