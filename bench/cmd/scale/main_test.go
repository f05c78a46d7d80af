package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/cmd/internal/cmdline"
	"github.com/postern-dev/postern/bench/scale"
	"github.com/postern-dev/postern/testenv/patience"
)

// The program starts itself as joiner and, with -postern "", as hub. In tests that is the test
// binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == serveArg || os.Args[1] == joinArg) {
		main()
	}
	os.Exit(m.Run())
}

func TestIdlePeersAndNewOnesAreMeasured(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	defer cancel()
	code, stdout, stderr := execute(ctx, "-postern", "", "-peers", "2", "-settle", "0s", "-window", "100ms", "-joins", "2", "-json", "idle")
	var r scale.Report
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
		t.Fatalf("exit code %d, stdout %q (%v), stderr %q; want 0 and a report", code, stdout, err, stderr)
	}
	if len(r.Idle) != 1 || r.Idle[0].Peers != 2 || len(r.Idle[0].Joins) != 2 || r.Idle[0].Join() <= 0 {
		t.Errorf("got %+v, want two peers and two join times", r.Idle)
	}
}

func TestAJoinerWithoutInvitationFails(t *testing.T) {
	code, stdout, stderr := execute(t.Context(), joinArg)
	if want := "scale: join a hub: read the invitation: unexpected EOF\n"; code != 1 || stdout != "" || stderr != want {
		t.Errorf("exit code %d, stderr %q, stdout %q; want 1 and %q on stderr alone", code, stderr, stdout, want)
	}
}

// execute runs the command and returns its exit code and output.
func execute(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, said bytes.Buffer
	code = cmdline.Run(ctx, "scale", run, args, cmdline.Streams{In: strings.NewReader(""), Out: &out, Err: &said})
	return code, out.String(), said.String()
}

func TestParse(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.what, []string{idle, storm, flood}) || !slices.Equal(o.peers, []int{1, 10, 100, 1000}) || o.self {
		t.Errorf("without arguments: got %v with %v peers; want all with 1, 10, 100 and 1000", o.what, o.peers)
	}
	o, err = parse([]string{"-peers", "3", "-window", "1s", "-postern", "", "storm"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.what, []string{storm}) || !slices.Equal(o.peers, []int{3}) || o.window != time.Second || !o.self {
		t.Errorf("got %+v, want only the storm, with 3 peers and this program as hub, and 1 s", o)
	}
}

func TestMistakesEndWithExitCode2AndSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"hail"}, `scale: unexpected argument "hail" (there are: idle, storm, flood; flags go before them)`},
		{[]string{"-peers", "1,many"}, `scale: -peers "1,many" is no list of numbers of peers (want numbers from 1 to 10000, separated by commas)`},
		{[]string{"-peers", "0"}, `scale: -peers "0" is no list of numbers of peers (want numbers from 1 to 10000, separated by commas)`},
		{[]string{"-rate", "0"}, "scale: -rate 0 is no flood (for example -rate 50000)"},
		{[]string{"-window", "0s"}, "scale: -window 0s and -flood-window 10s: nothing is measured in no time (for example 60s and 10s)"},
		{[]string{"-joins", "-1"}, "scale: -settle 1m0s and -joins -1 cannot be negative (0 leaves out either)"},
		{[]string{"-window", "long"}, `scale: invalid value "long" for flag -window: parse error (-h lists the flags)`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			code, stdout, stderr := execute(t.Context(), c.args...)
			if code != 2 || stderr != c.want+"\n" || stdout != "" {
				t.Errorf("exit code %d, stderr %q, stdout %q; want 2 and %q on stderr alone", code, stderr, stdout, c.want)
			}
		})
	}
}
