package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/cmd/internal/cmdline"
)

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
		t.Errorf("got %+v, want the storm alone with 3 peers of this program itself, and 1 s", o)
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
			var stdout, stderr bytes.Buffer
			s := cmdline.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}
			code := cmdline.Run(t.Context(), "scale", run, c.args, s)
			if code != 2 || stderr.String() != c.want+"\n" || stdout.Len() > 0 {
				t.Errorf("exit code %d, stderr %q, stdout %q; want 2 and %q on stderr alone", code, stderr.String(), stdout.String(), c.want)
			}
		})
	}
}
