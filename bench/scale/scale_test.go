package scale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// First arguments of the test binary that select another program.
const (
	serveArg  = "-serve-hub"
	joinArg   = "-join-hub"
	brokenArg = "-broken" // prints the next argument, and fails
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == serveArg:
		err = Serve(context.Background(), os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == joinArg:
		err = Join(context.Background(), os.Stdin, os.Stdout)
	case len(os.Args) == 3 && os.Args[1] == brokenArg:
		fmt.Println(os.Args[2])
		err = errors.New("out of luck")
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// testOptions use the test binary as gateway and as joiner.
func testOptions(t *testing.T) (context.Context, Options) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	t.Cleanup(cancel)
	return ctx, Options{
		Gateway: []string{self, serveArg}, Joiner: []string{self, joinArg}, Progress: func(s string) { t.Log(s) },
	}
}

func TestIdlePeersAreMeasured(t *testing.T) {
	ctx, o := testOptions(t)
	got, err := MeasureIdle(ctx, IdleOptions{Options: o, Counts: []int{3}, Window: 100 * time.Millisecond, Joins: 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Peers != 3 || got[0].Anon == 0 || got[0].RSS < got[0].Anon || got[0].Goroutines == 0 {
		t.Fatalf("got %+v, want three peers, memory and goroutines", got)
	}
	if j := got[0].Joins; len(j) != 2 || j[0] <= 0 || j[1] <= 0 {
		t.Errorf("got %v, want two join times", j)
	}
}

func TestPeersComeBackToARestartedHub(t *testing.T) {
	ctx, o := testOptions(t)
	got, err := MeasureStorm(ctx, StormOptions{Options: o, Peers: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Killed || !got[1].Killed {
		t.Fatalf("got %+v, want a clean restart and one after a kill", got)
	}
	for _, s := range got {
		if s.Back < s.Most || s.Most <= 0 || s.Asked == 0 || s.PeakAnon == 0 {
			t.Errorf("got %+v, want times in their order", s)
		}
	}
}

// The hub must accept the flood's mac1. Otherwise nothing is measured.
func TestInitiationsAreForTheHub(t *testing.T) {
	key, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	list := initiations(key.Public(), 3)
	for i, m := range list {
		in, _ := tunnel.NewInspector(key).Initiation(m)
		if !in.ForUs {
			t.Errorf("initiation %d: its mac1 is not for the hub", i)
		}
		if i > 0 && bytes.Equal(m, list[0]) {
			t.Errorf("initiation %d is the first one again", i)
		}
	}
}

func TestReportHasTablesAndCharts(t *testing.T) {
	var b strings.Builder
	r := Report{
		Idle: []Idle{
			{Peers: 1, Anon: 10e6, RSS: 30e6, CPU: 0.001, Goroutines: 60, Joins: []time.Duration{30e6, 10e6, 20e6}},
			{Peers: 101, Anon: 15e6, RSS: 35e6, CPU: 0.003, Goroutines: 360, Joins: []time.Duration{30e6}},
		},
		Storm: []Storm{{Peers: 3, Killed: true, Back: time.Second}},
		Flood: []Flood{{Kind: "one stranger", Sent: 50_000, Alone: 2e9, Under: 1e9, HubAlone: 0.8, HubUnder: 1.1, Sender: 0.4, Cores: 2}},
	}
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{ // by their first words
		"101 15.0":     {"50", "20", "30ms", "1.50"}, // kB and ppm a peer, new peer and its ratio
		"3 SIGKILL":    {"1s"},
		"one stranger": {"50000", "2.00", "1.00", "0.50", "0.62", "0.80", "1.10", "0.40"},
	}
	for line := range strings.Lines(b.String()) {
		fields := strings.Join(strings.Fields(line), " ")
		for first, cells := range rows {
			if !strings.HasPrefix(fields, first) {
				continue
			}
			delete(rows, first)
			for _, c := range cells {
				if !strings.Contains(" "+fields+" ", " "+c+" ") {
					t.Errorf("the row %q lacks %q", fields, c)
				}
			}
		}
	}
	if len(rows) > 0 {
		t.Errorf("rows are missing: %v\n%s", rows, b.String())
	}
}
