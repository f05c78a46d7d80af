package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/postern-dev/postern/testenv/lab"
)

// published is everything that a site shows to whoever may ask: status, configuration
// and metrics.
func published(w *world, s *lab.Site) string {
	w.t.Helper()
	st, err := s.Gateway.Status(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg, err := s.Gateway.Config(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := json.Marshal([]any{st, cfg})
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text) + exposition(w, s)
}

// exposition is what a scrape gets.
func exposition(w *world, s *lab.Site) string {
	w.t.Helper()
	registry, err := s.Gateway.Metrics()
	if err != nil {
		w.t.Fatal(err)
	}
	out := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(out, httptest.NewRequestWithContext(w.ctx, http.MethodGet, "/metrics", nil))
	if out.Code != http.StatusOK {
		w.t.Fatalf("scrape: %d %s", out.Code, out.Body)
	}
	return out.Body.String()
}

// gatherSecrets collects the secrets in a site's state directory.
func gatherSecrets(w *world, s *lab.Site, into map[string]string) {
	w.t.Helper()
	dir := filepath.Join(filepath.Dir(s.File), "state")
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			w.t.Fatal(err)
		}
		return string(b)
	}
	into[s.Name+"'s private key"] = strings.TrimSpace(read("private.key"))
	for _, name := range []string{"peers.json", "tickets.json"} {
		_, body, _ := strings.Cut(read(name), "\n")
		var doc any
		if err := json.Unmarshal([]byte(body), &doc); err != nil {
			w.t.Fatal(err)
		}
		walkSecrets(s.Name+" "+name, doc, into)
	}
}

// walkSecrets collects the values of fields that hold secrets.
func walkSecrets(at string, v any, into map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			text, ok := x.(string)
			secret := k == "presharedKey" || k == "tunnelPresharedKey" || k == "replyMAC" || k == "peerKey"
			if ok && secret && text != "" {
				into[at+" "+k] = text
				continue
			}
			walkSecrets(at+" "+k, x, into)
		}
	case []any:
		for i, x := range v {
			walkSecrets(fmt.Sprintf("%s[%d]", at, i), x, into)
		}
	}
}
