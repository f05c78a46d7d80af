package screen

import (
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// plainTalk is the busy gateway without malicious texts, and with a minute of traffic: the source
// of the pictures in the README.
func plainTalk() *fake {
	f := busy()
	rename := func(name *string) {
		switch {
		case strings.HasPrefix(*name, "new"):
			*name = "branch"
		case strings.HasPrefix(*name, "site"):
			*name = "site"
		}
	}
	for i := range f.status.Peers {
		p := &f.status.Peers[i]
		rename(&p.Name)
		if p.Path.Kind == api.PathRelay {
			p.Path.Reason = "nothing direct answers"
		}
	}
	for i := range f.report.Checks {
		c := &f.report.Checks[i]
		rename(&c.Peer)
		for j := range c.Stages {
			c.Stages[j].Detail = strings.ReplaceAll(c.Stages[j].Detail, "\x1b[2J", "")
		}
	}
	f.past.Peers = slices.Clone(f.past.Peers)
	for i := range f.past.Peers {
		rename(&f.past.Peers[i].Peer)
	}
	for i := range f.services.Services {
		x := &f.services.Services[i]
		x.Cause = strings.ReplaceAll(x.Cause, "\x1b[2J", "")
	}
	for i := range f.log.Records {
		for j := range f.log.Records[i].Attrs {
			a := &f.log.Records[i].Attrs[j]
			a.Value = strings.TrimSuffix(a.Value, "\x1b[31m")
		}
	}
	return f
}

// minuteOf feeds a minute of snapshots with varying traffic.
func minuteOf(t *testing.T) *stage {
	t.Helper()
	const seconds = 60
	f := plainTalk()
	s := play(t, f, 80, 24, false)
	s.data.traffic = map[string]*ring{}
	rx := f.status.Peers[1].RxBytes
	for i := range seconds + 1 {
		at := noon.Add(time.Duration(i-seconds) * time.Second)
		wave := 1 + math.Sin(float64(i)/6)
		step := uint64(620_000 * wave)
		rx += step
		snapshot := f.status
		snapshot.Peers = append([]api.PeerStatus(nil), f.status.Peers...)
		p := &snapshot.Peers[1]
		p.RxBytes, p.TxBytes = rx, p.TxBytes+uint64(i)*90_000
		p.RxBytesPerSecond, p.TxBytesPerSecond = float64(step), 90_000
		p.Flows = append([]api.Flow(nil), p.Flows...)
		p.Flows[0].RxBytes = rx - f.status.Peers[1].RxBytes
		p.Flows[0].TxBytes = p.TxBytes
		s.data.took(snapshot, at)
		s.show(4)
		s.View() // Rates of flows are computed between two frames.
	}
	for i := range uint64(2) {
		list := f.services
		list.Services = slices.Clone(list.Services)
		for j := range list.Services {
			if used := list.Services[j].Used; used != nil {
				list.Services[j].Used = &api.ServiceUse{Connections: used.Connections + 9*i, RxBytes: used.RxBytes + 566e3*i, TxBytes: used.TxBytes + 180e3*i, Failures: used.Failures}
			}
		}
		s.data.offered.took(list, noon.Add(time.Duration(i)*servicesEvery))
	}
	s.show(0)
	return s
}

func TestTheReadmeShowsTheViewsAsTheyAre(t *testing.T) {
	const file = "../README.md"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	shows := func(title, shown string) {
		picture := ""
		for line := range strings.SplitSeq(shown, "\n") {
			picture += strings.TrimRight(line, " ") + "\n"
		}
		before, rest, found := strings.Cut(text, "## "+title+"\n")
		intro, rest, opened := strings.Cut(rest, "```text\n")
		old, rest, closed := strings.Cut(rest, "```\n")
		if !found || !opened || !closed || strings.Contains(intro, "###") {
			t.Fatalf("the README has no picture of %s", title)
		}
		if old != picture && !*writeGolden {
			t.Errorf("the README's picture of %s is old (write it with go test ./tui/screen -update).\ngot:\n%s\nwant:\n%s", title, old, picture)
		}
		text = before + "## " + title + "\n" + intro + "```text\n" + picture + "```\n" + rest
	}
	s := play(t, blocked(), 80, 24, false)
	w := s.data.way(s.data.peer())
	shows("The path diagram", strings.Join(cell.WayDiagram(&w, 80, cell.Bare, cell.BoxLines, noon), "\n"))
	s = minuteOf(t)
	for i, v := range s.views {
		s.press(string(rune('1' + i)))
		fits(t, s.View(), 80, 24)
		shows(v.title(), s.View())
	}
	s, _ = fleetOf(t, 80, 24, false)
	shows(titleFleet, strings.ReplaceAll(s.View(), "�[2J", ""))
	if *writeGolden && text != string(content) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Everything on the screen is available to scripts: docs/screen.md has a row for each column and
// fact, with its place in the documents that commands print.
func TestEachColumnIsInADocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/screen.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| view | shown | in JSON |")
	in := map[[2]string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+) \| (.+) \| (.+) \|$`).FindAllStringSubmatch(table, -1) {
		in[[2]string{row[1], row[2]}] = row[3]
	}
	s := play(t, busy(), 200, 60, false).press("w")
	shown := map[string][]string{
		titleOverview: titlesOf(overviewColumns(s.data, inWords, longName)), titleFlows: titlesOf((&flows{}).layout(s.data)),
		titleServices: titlesOf(serviceColumns(true)), titleFleet: titlesOf(fleetColumns(s.data)),
	}
	for _, fact := range append(faring(s.data, s.data.peer()), about(s.data.peer())...) {
		shown[titlePeer] = append(shown[titlePeer], fact[0])
	}
	documents := map[string]any{"Status": api.Status{}, "History": api.History{}, "ClusterServices": api.ClusterServices{}}
	path := regexp.MustCompile("`(\\w+)\\.([^`]+)`")
	for view, titles := range shown {
		for _, title := range titles {
			where := in[[2]string{strings.ToLower(view), title}]
			if where == "" {
				t.Errorf("docs/screen.md does not say where a script finds %s of %s", title, view)
			}
			delete(in, [2]string{strings.ToLower(view), title})
			for _, p := range path.FindAllStringSubmatch(where, -1) {
				if of := documents[p[1]]; of == nil || !within(reflect.TypeOf(of), p[2]) {
					t.Errorf("%s of %s: there is no %s", title, view, p[0])
				}
			}
		}
	}
	for gone := range in {
		t.Errorf("there is no %s of %s any more", gone[1], gone[0])
	}
}

func titlesOf[R any](columns []cell.Column[R]) (titles []string) {
	for _, c := range columns {
		titles = append(titles, c.Title)
	}
	return titles
}

// within reports whether documents of a type have a path of JSON names, with [] after lists.
func within(of reflect.Type, path string) bool {
	name, rest, more := strings.Cut(path, ".")
	name, list := strings.CutSuffix(name, "[]")
	for _, f := range reflect.VisibleFields(of) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != name {
			continue
		}
		in := f.Type
		if list != (in.Kind() == reflect.Slice && more) {
			return false
		}
		if list || in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		return !more || within(in, rest)
	}
	return false
}
