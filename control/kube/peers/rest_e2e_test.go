//go:build linux && e2e

package peers

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// requests returns the API server's own count of requests for a resource.
func (s *site) requests(resource string) (n float64) {
	s.t.Helper()
	line := regexp.MustCompile(`(?m)^apiserver_request_total\{.*resource="` + resource + `".*\} ([0-9.e+]+)$`)
	for _, m := range line.FindAllStringSubmatch(s.kubectl("", "get", "--raw", "/metrics"), -1) {
		x, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			s.t.Fatal(err)
		}
		n += x
	}
	return n
}

// At rest, a hundred peers whose round trip times always change cost few requests.
func testRest(t *testing.T, w *world) {
	const (
		many   = 100
		window = 15 * time.Second
		limit  = 1.0 // a second
	)
	s := w.site(t, "rest")
	s.gateway.rtt = func() float64 { return 0.005 + rand.Float64() }
	var manifests []string
	for i := range many {
		manifests = append(manifests, manifest(fmt.Sprintf("peer-%03d", i), keyOf(i+1), "allow: [auth]"))
	}
	s.apply(manifests...)
	start := time.Now()
	s.run()
	s.eventually("all are shown", func() (bool, string) {
		out := s.kubectl("", "get", "peers", "-n", s.namespace, "-o", "jsonpath={.items[*].status.state}")
		return strings.Count(out, "connected") == many, fmt.Sprint(strings.Count(out, "connected"))
	})
	t.Logf("%d peers are shown %v after the start", many, time.Since(start).Round(10*time.Millisecond))
	before := s.requests("peers") + s.requests("events")
	if before < 2*many {
		t.Errorf("the API server has counted %.0f requests, want a status and an event of each", before)
	}
	select {
	case <-time.After(window): // there is no event to wait for: the test is about requests that are not sent
	case <-t.Context().Done():
	}
	rate := (s.requests("peers") + s.requests("events") - before) / window.Seconds()
	t.Logf("%.2f requests a second at rest", rate)
	if rate > limit {
		t.Errorf("%.2f requests a second, want at most %.1f", rate, limit)
	}
}
