package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// record is the log of a world, one JSON object a line.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// tail is the end of the log, without what WireGuard says of its own workings.
func (r *record) tail(n int) string {
	var b strings.Builder
	for line := range strings.Lines(r.String()) {
		if !strings.Contains(line, `"msg":"wireguard"`) {
			b.WriteString(line)
		}
	}
	s := b.String()
	return s[max(0, len(s)-n):]
}

// count is how many audit records of a site there are with these attributes, whose
// values need only contain what is given.
func (r *record) count(site, event string, attrs map[string]string) int {
	n := 0
	for line := range strings.Lines(r.String()) {
		var e map[string]any
		if json.Unmarshal([]byte(line), &e) != nil || e["msg"] != "audit" || e["gateway"] != site || e["event"] != event {
			continue
		}
		fits := true
		for k, v := range attrs {
			fits = fits && strings.Contains(fmt.Sprint(e[k]), v)
		}
		if fits {
			n++
		}
	}
	return n
}
