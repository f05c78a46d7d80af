//go:build linux && e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

const alertRules = "../../cmd/postern/deploy/alerts/postern.yaml"

// alarms are faults of the fault lab. Each makes an alert fire at left until it is fixed.
var alarms = []struct {
	alert   string
	setting setting
	play    func(*faultLab, *record)
}{
	{"PosternPeerDown", plain(), func(f *faultLab, r *record) {
		f.run(true)
		r.hold(2, false)
		f.right.stop(syscall.SIGKILL)
		r.await("postern_peer_connected", func(v float64) bool { return v == 0 })
		r.hold(7, true)
		f.right.launch()
		f.left.waitConnected(f.right.name)
		r.hold(2, false)
	}},
	{"PosternServiceUnreachable", plain(), func(f *faultLab, r *record) {
		f.run(true)
		works := func(ok float64) {
			r.await("postern_check_success", func(v float64) bool { return v == ok }, `direction="outbound"`, `target="apiServer"`)
		}
		works(1)
		r.hold(2, false)
		f.right.api.stop()
		f.left.check()
		works(0)
		r.hold(7, true)
		f.right.api.start()
		f.left.check()
		works(1)
		r.hold(2, false)
	}},
	{"PosternRelayInUse", setting{left: symmetric, right: symmetric, edit: strangers}, func(f *faultLab, r *record) {
		f.run(false)
		r.hold(2, false)
		f.join()
		f.awaitPath(api.PathRelay, patience)
		r.hold(62, true)
		f.right.forward()
		f.awaitPath(api.PathDirect, patience)
		r.hold(2, false)
	}},
	{"PosternIdentityExpiring", plain(func(f *faultLab) { f.right.issueBy(f.right.clientCA(shortTTL)) }), func(f *faultLab, r *record) {
		f.left.launch()
		f.left.waitReady()
		r.hold(1, false)
		f.right.trustIssuer()
		f.right.launch()
		expires := func(late bool) {
			r.await("postern_peer_identity_expiry_timestamp_seconds", func(v float64) bool {
				return (v > float64(time.Now().Add(2*shortTTL).Unix())) == late
			})
		}
		expires(false)
		r.hold(2, true)
		f.right.issueBy(f.right.clientCA(24 * time.Hour))
		f.right.trustIssuer()
		f.right.reload()
		expires(true)
		r.hold(2, false)
	}},
	{"PosternTicketUsedTwice", plain(), func(f *faultLab, r *record) {
		f.run(true)
		r.hold(2, false)
		f.useTwice()
		r.await("postern_ticket_alarms_total", func(v float64) bool { return v == 1 })
		r.hold(2, true)
		r.hold(62, false)
	}},
	{"PosternPathMTUSmall", narrow(), func(f *faultLab, r *record) {
		f.run(true)
		r.await("postern_peer_path_mtu_bytes", func(v float64) bool { return v >= 1280 }) // in fragments
		r.hold(2, false)
		f.core.DropICMPErrors()
		f.right.nat.DropICMPErrors()
		fragments := f.core.Drop("ip frag-off & 0x3fff != 0")
		r.await("postern_peer_path_mtu_bytes", func(v float64) bool { return v < 1280 })
		r.hold(17, true)
		fragments.Remove()
		f.left.restartWith(func(*api.GatewaySpec) {}) // otherwise it only checks again after ten minutes
		r.await("postern_peer_path_mtu_bytes", func(v float64) bool { return v >= 1280 })
		r.hold(2, false)
	}},
	{"PosternRestarting", plain(), func(f *faultLab, r *record) {
		f.run(true)
		r.hold(2, false)
		for i := range 3 {
			f.left.restartWith(func(*api.GatewaySpec) {})
			r.hold(2, i == 2)
		}
		r.hold(31, false)
	}},
	{"PosternMemoryNearLimit", plain(), func(f *faultLab, r *record) {
		f.run(true)
		r.hold(2, false)
		f.left.env = []string{"GOMEMLIMIT=20MiB"} // as in a control group of 22 MiB
		f.left.restartWith(func(*api.GatewaySpec) {})
		r.hold(7, true)
		f.left.env = []string{"GOMEMLIMIT=230MiB"}
		f.left.restartWith(func(*api.GatewaySpec) {})
		r.hold(2, false)
	}},
	{"PosternReloadRefused", plain(), func(f *faultLab, r *record) {
		f.run(true)
		r.hold(2, false)
		f.left.doc.Spec.MTU = 1
		f.left.reload()
		r.await("postern_reloads_total", func(v float64) bool { return v == 1 }, `result="error"`)
		r.hold(2, true)
		f.left.doc.Spec.MTU = 0
		f.left.reload()
		r.await("postern_reloads_total", func(v float64) bool { return v == 1 }, `result="success"`)
		r.hold(62, false)
	}},
}

// TestAlertsFireAndEnd scrapes gateways during and after faults. Prometheus evaluates the rules
// on the results, each as if it had lasted for some minutes. PROMTOOL is the command line of
// promtool.
func TestAlertsFireAndEnd(t *testing.T) {
	promtool := strings.Fields(os.Getenv("PROMTOOL"))
	if len(promtool) == 0 {
		t.Skip("PROMTOOL does not say how promtool is run: make test-alerts")
	}
	text, err := os.ReadFile(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	var defined, tested []string
	for _, found := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		defined = append(defined, found[1])
	}
	names := regexp.MustCompile(`\b(?:postern|process|go)_\w+`).FindAllString(string(text), -1)
	for _, a := range alarms {
		tested = append(tested, a.alert)
		t.Run(a.alert, func(t *testing.T) {
			t.Parallel()
			f := newFaultLab(t, a.setting)
			r := &record{gateway: f.left.gateway, alert: a.alert, names: names, start: time.Now(), series: map[string][]string{}}
			a.play(f, r)
			file := filepath.Join(tempDir(t), "alerts_test.yaml")
			writeFile(t, file, r.test(rules), 0o600)
			if out, err := netlab.Run(within(t, 10*patience), "", "", append(promtool, "test", "rules", file)...); err != nil {
				t.Errorf("%v\n%s\n%s", err, out, r.test(rules))
			}
			t.Logf("%d series over %d minutes", len(r.series), r.minutes)
		})
	}
	if slices.Sort(tested); !slices.Equal(slices.Sorted(slices.Values(defined)), tested) {
		t.Errorf("there are %v, and faults for %v", defined, tested)
	}
}

// record is what Prometheus stores of a gateway that it scrapes every minute.
type record struct {
	*gateway
	alert   string
	names   []string // of the metrics that the rules use
	start   time.Time
	minutes int
	series  map[string][]string // values by minute
	moments []moment
}

// moment is the end of a minute, and whether the alert fires then.
type moment struct {
	minute int
	fires  bool
}

// await waits for a metric to have a value.
func (r *record) await(name string, ok func(float64) bool, labels ...string) {
	r.t.Helper()
	eventually(within(r.t, patience), r.t, name+" is as it must be", func() (bool, string) {
		v, found := r.metric(name, labels...)
		return found && ok(v), fmt.Sprint(v, found)
	})
}

// hold repeats the current values for some minutes, after which the alert fires or not.
func (r *record) hold(minutes int, fires bool) {
	r.t.Helper()
	text, err := r.httpGet("/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		if !slices.Contains(r.names, name) {
			continue
		}
		if strings.Contains(name, "_time_seconds") || strings.Contains(name, "_timestamp_seconds") {
			value = r.sinceStart(value)
		}
		series = fmt.Sprintf(`%s{job="postern",instance="%s:9520"`, name, r.name)
		if labels != "" {
			series += "," + labels
		}
		series += "}"
		r.series[series] = append(r.until(series), slices.Repeat([]string{value}, minutes)...)
	}
	r.minutes += minutes
	r.moments = append(r.moments, moment{r.minutes - 1, fires})
}

// until returns the values of a series for the minutes so far. Where it was not exported it is
// stale.
func (r *record) until(series string) []string {
	values := r.series[series]
	return append(values, slices.Repeat([]string{"stale"}, r.minutes-len(values))...)
}

// sinceStart converts a time to that of the rule tests, which begin in 1970.
func (r *record) sinceStart(value string) string {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return strconv.FormatFloat(v-float64(r.start.Unix()), 'f', 2, 64)
}

// test returns the input of `promtool test rules`. At first no alert fires.
func (r *record) test(rules string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%s]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n", rules)
	for _, name := range slices.Sorted(maps.Keys(r.series)) {
		fmt.Fprintf(&b, "  - {series: '%s', values: '%s'}\n", name, strings.Join(r.until(name), " "))
	}
	b.WriteString("  promql_expr_test:\n")
	for i, m := range r.moments {
		which, samples := fmt.Sprintf(`alertname="%s",`, r.alert), "[]"
		if i == 0 {
			which = ""
		}
		if m.fires {
			samples = "[{labels: '{}', value: 1}]"
		}
		fmt.Fprintf(&b, "  - {expr: 'sum(ALERTS{%salertstate=\"firing\"}) > bool 0', eval_time: %dm, exp_samples: %s}\n", which, m.minute, samples)
	}
	return b.String()
}
