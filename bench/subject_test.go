package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/load"
)

// childArg makes the test binary the process of a run, relayArg a TURN server, as in cmd/bench.
const (
	childArg = "-run-subject"
	relayArg = "-serve-relay"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == relayArg {
		if err := ServeRelay(os.Args[2], os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, "relay:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) != 3 || os.Args[1] != childArg {
		os.Exit(m.Run())
	}
	subjects := load.Program{Alone: map[string]load.Alone{
		"works": func(_ context.Context, spec load.Spec) (load.Result, error) {
			return load.Result{Bytes: uint64(spec.Streams), Seconds: 1}, nil
		},
		"silent": func(context.Context, load.Spec) (load.Result, error) {
			return load.Result{Seconds: 1}, nil
		},
		"fails": func(context.Context, load.Spec) (load.Result, error) {
			return load.Result{}, errors.New("cannot bind")
		},
		"hangs": func(ctx context.Context, _ load.Spec) (load.Result, error) {
			<-ctx.Done()
			return load.Result{}, ctx.Err()
		},
	}}
	if err := subjects.Main(context.Background(), os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func self(t *testing.T) []string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{program, childArg}
}

func TestProcessReturnsTheChildsResult(t *testing.T) {
	got, err := process(self(t))(t.Context(), load.Spec{Subject: "works", Streams: 4, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if got.Bytes != 4 {
		t.Errorf("got %d bytes, want the 4 of the spec", got.Bytes)
	}
}

func TestWhatWasBeforeIsPosternOfItsProgram(t *testing.T) {
	if err := before(nil).Prepare(t.Context()); err == nil {
		t.Error("without a program: got no error")
	}
	_, err := before(self(t)).Run(t.Context(), load.Spec{Subject: PosternBefore, Duration: time.Second})
	if err == nil || !strings.Contains(err.Error(), `no subject "postern" in this program`) {
		t.Errorf("got %v, want an error from the program about postern", err)
	}
}

func TestProcessTellsWhyAChildFailed(t *testing.T) {
	for subject, want := range map[string]string{
		"fails":   "child: fails: cannot bind",
		"silent":  "nothing arrived",
		"unknown": `no subject "unknown"`,
	} {
		t.Run(subject, func(t *testing.T) {
			_, err := process(self(t))(t.Context(), load.Spec{Subject: subject, Duration: time.Second})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}

func TestProcessEndsAChildWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := process(self(t))(ctx, load.Spec{Subject: "hangs", Duration: time.Hour})
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

// The processes of wireguard-go are in no control group, so this subject refuses limits. Otherwise
// it would silently be compared with processes that have them.
func TestWireguardGoIsNotRunWithinLimits(t *testing.T) {
	r := Runner{Subjects: Subjects(Programs{Peers: "peers", Dir: t.TempDir()})}
	subject, ok := r.subject(WireGuardGo)
	if !ok {
		t.Fatalf("no subject %s", WireGuardGo)
	}
	_, err := subject.Run(t.Context(), load.Spec{Subject: WireGuardGo, CPUs: 0.5, Memory: 64 << 20, Duration: time.Second})
	if want := "cannot be limited to 0.5 CPU, 64 MiB"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

func TestParseResult(t *testing.T) {
	const good = `{"bytes":1,"seconds":1,"userSeconds":0,"systemSeconds":0,"peakRSSBytes":0,"peakAnonBytes":0}` + "\n"
	for _, c := range []struct{ name, out, want string }{
		{"one line", good, ""},
		{"nothing", "", "read result: EOF"},
		{"text", "panic: x", "panic: x"},
		{"two lines", good + good, "more than one line"},
		{"a field of another version", `{"bytes":1,"packets":3}`, "packets"},
		{"no payload", `{"bytes":0,"seconds":1}`, "nothing arrived"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseResult([]byte(c.out))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v, want none", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestQuotedKeepsTheEndOfLongOutput(t *testing.T) {
	got := quoted([]byte("first\n" + strings.Repeat("x", 500) + "\nlast\n"))
	if len(got) > 420 || !strings.HasSuffix(got, "x; last") || strings.Contains(got, "first") {
		t.Errorf("got %q", got)
	}
}

// TestPeersUseTheSameLoad checks that the peers' modules compile the files of package load.
func TestPeersUseTheSameLoad(t *testing.T) {
	files, err := filepath.Glob("load/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in load: %v", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range []string{"peers", "peers/tsnet"} {
			link := filepath.Join(module, file)
			got, err := os.ReadFile(link)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not %s (want a symbolic link to it): %v", link, file, err)
			}
		}
	}
}
