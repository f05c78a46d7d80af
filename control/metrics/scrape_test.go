package metrics

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"sigs.k8s.io/yaml"
)

// scrape returns the metrics and labels that a scraper sees of a gateway whose every metric has a
// value; job and instance are added by the scraper.
func scrape(t *testing.T) map[string][]string {
	t.Helper()
	snap := connected()
	reg, err := NewRegistry(collector(&snap))
	if err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]string)
	for _, f := range families {
		labels := []string{"job", "instance"}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
		}
		out[f.GetName()] = labels
	}
	return out
}

// TestScrapesFollowTheNamingConventions lints the server's output, as `promtool check metrics`
// would.
func TestScrapesFollowTheNamingConventions(t *testing.T) {
	status, body := request(t, serve(t, nil, nil), http.MethodGet, "/metrics")
	if status != http.StatusOK || !strings.Contains(body, "postern_build_info") || !strings.Contains(body, "go_goroutines") {
		t.Fatalf("a scrape gives %d:\n%s", status, body)
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// dashboard is the part of a Grafana dashboard that the tests read.
type dashboard struct {
	UID        string  `json:"uid"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query any    `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID          int    `json:"id"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Type        string `json:"type"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr         string `json:"expr"`
		RefID        string `json:"refId"`
		LegendFormat string `json:"legendFormat"`
		Datasource   struct {
			UID string `json:"uid"`
		} `json:"datasource"`
	} `json:"targets"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("../../cmd/postern/deploy/grafana/postern.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Parts of PromQL that contain no names of metrics: strings, ranges, lists of labels, names of
// functions, and keywords.
var (
	quotes    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	ranges    = regexp.MustCompile(`\[[^\]]*\]`)
	lists     = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	matchers  = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}`)
	braces    = regexp.MustCompile(`\{[^}]*\}`)
	functions = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_]*\s*\(`)
	names     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	words     = []string{"and", "or", "unless", "bool", "offset"}
)

// metricsOf returns the names of metrics in an expression, with the labels in their matchers.
func metricsOf(expr string) map[string][]string {
	expr = strings.ReplaceAll(quotes.ReplaceAllString(expr, "''"), "_bucket{", "{") // a histogram's series by the histogram's name
	out := make(map[string][]string)
	for _, m := range matchers.FindAllStringSubmatch(expr, -1) {
		out[m[1]] = append(out[m[1]], names.FindAllString(m[2], -1)...)
	}
	expr = ranges.ReplaceAllString(expr, "")
	expr = lists.ReplaceAllString(expr, "")
	expr = braces.ReplaceAllString(expr, "")
	expr = functions.ReplaceAllString(expr, "(")
	for _, name := range names.FindAllString(expr, -1) {
		if _, ok := out[name]; !ok && !slices.Contains(words, name) {
			out[name] = nil
		}
	}
	return out
}

func TestMetricsOfAnExpression(t *testing.T) {
	got := metricsOf(`sum by (peer) (rate(a_total{peer=~"$peer", x!="y{z}"}[$__rate_interval])) / on(peer) group_left(state) b or vector(0) > bool 1000`)
	if len(got) != 2 || !slices.Equal(got["a_total"], []string{"peer", "x"}) {
		t.Errorf("got %v", got)
	}
	if _, ok := got["b"]; !ok {
		t.Errorf("a metric without matchers is not found: %v", got)
	}
}

// asker checks whether queried metrics are exported.
type asker struct {
	t        *testing.T
	families map[string][]string
	asked    int
}

func (a *asker) check(where, expr string) {
	a.t.Helper()
	found := metricsOf(expr)
	if len(found) == 0 {
		a.t.Errorf("%s: no metric in %q", where, expr)
	}
	for name, labels := range found {
		a.asked++
		has, ok := a.families[name]
		if !ok {
			a.t.Errorf("%s asks for %s, which no gateway exports: %s", where, name, expr)
			continue
		}
		for _, l := range labels {
			if !slices.Contains(has, l) {
				a.t.Errorf("%s matches %s by %s, which it has not", where, name, l)
			}
		}
	}
}

func TestDashboardAsksForMetricsThatExist(t *testing.T) {
	a := &asker{t: t, families: scrape(t)}
	d := readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			a.check(p.Title, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if query, ok := v.Query.(string); ok && v.Type == "query" {
			inner := strings.TrimSuffix(strings.TrimPrefix(query, "label_values("), ")")
			metric, label, _ := strings.Cut(inner, ",")
			a.check("variable "+v.Name, metric)
			if has := a.families[strings.TrimSpace(braces.ReplaceAllString(metric, ""))]; !slices.Contains(has, strings.TrimSpace(label)) {
				t.Errorf("variable %s lists the label of %s, which it has not", v.Name, query)
			}
		}
	}
	if a.asked < 20 {
		t.Errorf("only %d metrics were looked at", a.asked)
	}
}

// Alerts are tested with promtool (make alerts), which does not know which metrics exist.
// README.md must list them.
func TestAlertsAskForMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../cmd/postern/deploy/alerts/postern.yaml")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("../../cmd/postern/deploy/alerts/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string } `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(text, &rules); err != nil || len(rules.Groups) != 1 {
		t.Fatalf("%d groups, %v", len(rules.Groups), err)
	}
	a := &asker{t: t, families: scrape(t)}
	for _, r := range rules.Groups[0].Rules {
		a.check(r.Alert, regexp.MustCompile(`\b[0-9.]+e[0-9]+\b`).ReplaceAllString(r.Expr, "0"))
		if !strings.Contains(string(readme), "| `"+r.Alert+"` |") {
			t.Errorf("README.md does not list %s", r.Alert)
		}
		if n := strings.Count(string(tests), "alertname: "+r.Alert); n < 3 { // before, during and after
			t.Errorf("%s is tested at %d moments", r.Alert, n)
		}
	}
	if a.asked < 8 {
		t.Errorf("only %d metrics were looked at", a.asked)
	}
}

// TestDashboardShowsEveryMetric ensures that no new metric is forgotten. It ignores those of the
// process and the Go runtime.
func TestDashboardShowsEveryMetric(t *testing.T) {
	// leftOut are postern's metrics that no panel shows: none.
	var leftOut []string
	shown := make(map[string]bool)
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			for name := range metricsOf(target.Expr) {
				shown[name] = true
			}
		}
	}
	for name := range scrape(t) {
		if listed := slices.Contains(leftOut, name); strings.HasPrefix(name, "postern_") && shown[name] == listed {
			t.Errorf("%s: on the dashboard %v, listed as left out %v", name, shown[name], listed)
		}
	}
}

func TestDashboardIsWellFormed(t *testing.T) {
	d := readDashboard(t)
	if d.UID != "postern" {
		t.Errorf("its UID is %q; links to it need the same one for ever", d.UID)
	}
	ids := make(map[int]bool)
	for i, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("%s: the id %d is not its own", p.Title, p.ID)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s lies outside of the grid: %+v", p.Title, g)
		}
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies over %s", p.Title, q.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%q lacks a title, a description or a query", p.Title)
		}
		if p.Type == "timeseries" && p.FieldConfig.Defaults.Unit == "" {
			t.Errorf("%s has no unit", p.Title)
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if target.RefID == "" || refs[target.RefID] {
				t.Errorf("%s: the reference %q is not its own", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%s asks the data source %q, not the one that is chosen", p.Title, target.Datasource.UID)
			}
			if !strings.Contains(target.Expr, `instance=~"$instance"`) {
				t.Errorf("%s mixes gateways that were not chosen: %s", p.Title, target.Expr)
			}
		}
	}
}

// TestReadmeMapsToMetricsThatExist checks the rules that map the predecessor's names.
func TestReadmeMapsToMetricsThatExist(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	families := scrape(t)
	for name := range families {
		if strings.HasPrefix(name, "liqo_") {
			t.Errorf("%s is exported; its name is another program's", name)
		}
	}
	for _, old := range []string{"liqo_peer_receive_bytes_total", "liqo_peer_transmit_bytes_total", "liqo_peer_latency_us", "liqo_peer_is_connected"} {
		_, rule, ok := strings.Cut(string(readme), "record: "+old+", expr: ")
		if !ok {
			t.Errorf("README.md has no rule for %s", old)
			continue
		}
		rule, _, _ = strings.Cut(rule, "\n")
		name := regexp.MustCompile(`postern_[a-z_]+`).FindString(rule)
		if _, ok := families[name]; !ok {
			t.Errorf("the rule for %s records %q, which is not exported", old, name)
		}
		if !strings.Contains(string(readme), "| `"+old+"` | `"+name) {
			t.Errorf("the table does not map %s to %s", old, name)
		}
	}
}
