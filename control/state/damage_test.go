package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// files returns the files of a directory with their content.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		out[e.Name()] = string(read(t, filepath.Join(dir, e.Name())))
	}
	return out
}

// two returns a directory with two generations of peers.json: edge, then edge and berlin.
func two(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := mustOpen(t, dir)
	put(t, s, edge())
	put(t, s, Peer{Name: "berlin", PublicKey: peer.PublicKey{9}})
	mustClose(t, s)
	return dir
}

func spoil(t *testing.T, file string) {
	t.Helper()
	b := read(t, file)
	b[len(b)/2] ^= 0x20
	write(t, file, b)
}

func TestADamagedFileIsKeptAndThePreviousGenerationUsed(t *testing.T) {
	dir := two(t)
	file := filepath.Join(dir, "peers.json")
	spoil(t, file)
	damaged := read(t, file)
	var out bytes.Buffer
	s, err := Open(dir, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Peer{edge()}, s.Peers().All(), same); diff != "" {
		t.Errorf("peers (-want +got):\n%s", diff)
	}
	for _, want := range []string{"WARN", CodeDamaged, file, "checksum", "keptAs=peers.json.damaged-"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q: %s", want, out.String())
		}
	}
	kept, err := filepath.Glob(file + ".damaged-*")
	if err != nil || len(kept) != 1 || !bytes.Equal(read(t, kept[0]), damaged) {
		t.Errorf("the damaged file was not kept: %v, %v", kept, err)
	}
	put(t, s, Peer{Name: "tokyo", PublicKey: peer.PublicKey{8}})
	mustClose(t, s)
	out.Reset()
	s, err = Open(dir, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if out.Len() > 0 || s.Peers().Len() != 2 {
		t.Errorf("the next start: %d peers, log %q; want 2 and nothing", s.Peers().Len(), out.String())
	}
}

// A damaged file that cannot be kept stops the start: nothing is lost before somebody has seen it.
func TestADamagedFileOnADiskThatRejectsWrites(t *testing.T) {
	for file, instead := range map[string]string{"peers.json": "its previous generation is intact", "boots.json": "an empty one would take its place (lost: "} {
		dir := two(t)
		path := filepath.Join(dir, file)
		write(t, path, []byte("garbage"))
		full := osDisk()
		full.link = func(string, string) error { return syscall.EROFS }
		full.write = func(*os.File, []byte) error { return syscall.EROFS }
		_, err := open(dir, nil, full)
		for _, want := range []string{path, "damaged: it has no header", instead, "read-only file system (mount it writable"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q in it", file, err, want)
			}
		}
	}
}

func TestALostFileIsSaidWithItsCause(t *testing.T) {
	dir := two(t)
	write(t, filepath.Join(dir, "observed.json"), nil)
	var out bytes.Buffer
	s, err := Open(dir, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, want := range []string{"starting empty", CodeDamaged, "it has no header", "lost="} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q: %s", want, out.String())
		}
	}
}

func TestNoGatewayStartsWithoutThePeersItHad(t *testing.T) {
	for name, previous := range map[string]func(t *testing.T, file string){
		"previous damaged too": spoil,
		"previous missing": func(t *testing.T, file string) {
			t.Helper()
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := two(t)
			file := filepath.Join(dir, "peers.json")
			spoil(t, file)
			previous(t, file+".previous")
			before := files(t, dir)
			for range 2 { // the second start must not accept that there is nothing
				s, err := Open(dir, nil)
				if !errors.Is(err, ErrDamaged) {
					t.Fatalf("got %v, %v; want %v", s, err, ErrDamaged)
				}
				if errors.Is(err, fs.ErrNotExist) { // commands would advise to create the file
					t.Errorf("%q is %v", err, fs.ErrNotExist)
				}
				for _, want := range []string{file, "backup", "nothing was changed"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q lacks %q", err, want)
					}
				}
			}
			if diff := cmp.Diff(before, files(t, dir)); diff != "" {
				t.Errorf("the directory changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestAMissingFileIsRestored(t *testing.T) {
	dir := two(t)
	if err := os.Remove(filepath.Join(dir, "peers.json")); err != nil {
		t.Fatal(err)
	}
	if n := mustOpen(t, dir).Peers().Len(); n != 1 {
		t.Errorf("%d peers, want the previous generation's 1", n)
	}
}

func TestMissingPeersAreTold(t *testing.T) {
	for name, join := range map[string]bool{"which had joined": true, "of which there were none": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "peers.json")
			var out bytes.Buffer
			start := func() {
				t.Helper()
				out.Reset()
				s, err := Open(dir, slog.New(slog.NewTextHandler(&out, nil)))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Boot(time.Now()); err != nil {
					t.Fatal(err)
				}
				if join {
					put(t, s, edge())
				}
				mustClose(t, s)
			}
			start()
			if start(); out.Len() > 0 {
				t.Errorf("with the file: %s", &out)
			}
			for _, f := range []string{file, file + previous} {
				if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			}
			start()
			for _, want := range []string{"WARN", CodeDamaged, file} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the log lacks %q: %s", want, &out)
				}
			}
			if start(); out.Len() > 0 {
				t.Errorf("it is told again: %s", &out)
			}
		})
	}
}

func TestALinkToNothingIsNoMissingFile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"peers.json", "observed.json"} {
		file := filepath.Join(dir, name)
		if err := os.Symlink(filepath.Join(dir, "unmounted"), file); err != nil {
			t.Skip(err)
		}
		if _, err := Open(dir, nil); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "unmounted, which does not exist") {
			t.Errorf("%s: got %v", name, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryChangedByteIsNoticed(t *testing.T) {
	dir := two(t)
	file := filepath.Join(dir, "peers.json")
	good := read(t, file)
	d := &document[Peers]{place: place{dir: dir, base: "peers.json"}, format: peersFormat}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x01
		c, err := d.parse(bad)
		if err == nil && (c.value.Len() != 2 || !bytes.Equal(c.body, good[bytes.IndexByte(good, '\n')+1:])) {
			t.Errorf("byte %d (%q) changed: read as %d peers", i, good[i], c.value.Len())
		}
		if _, err := d.parse(good[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d bytes: got %v, want %v", i, err, ErrDamaged)
		}
	}
}

func TestWhatWasTakenAwayStaysAwayAfterDamage(t *testing.T) {
	for name, take := range map[string]func(*Peers) error{
		"a peer": func(p *Peers) error { p.Remove("edge"); return nil },
		"a grant": func(p *Peers) error {
			x := edge()
			x.Allow = []string{"auth"}
			return p.Put(x)
		},
		"a preshared key": func(p *Peers) error {
			x := edge()
			x.PresharedKey = peer.PresharedKeyFromBytes([32]byte{99})
			return p.Put(x)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := two(t)
			s := mustOpen(t, dir)
			if err := s.Update(take); err != nil {
				t.Fatal(err)
			}
			want := s.Peers().All()
			mustClose(t, s)
			spoil(t, filepath.Join(dir, "peers.json"))
			if diff := cmp.Diff(want, mustOpen(t, dir).Peers().All(), same); diff != "" {
				t.Errorf("after damage (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDamagedTicketsAreVoid(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	r := records()
	for range 2 {
		if err := s.SaveTickets(r); err != nil {
			t.Fatal(err)
		}
		r.Seen = r.Seen.Add(time.Minute)
	}
	mustClose(t, s)
	spoil(t, filepath.Join(dir, "tickets.json"))
	var out bytes.Buffer
	s, err := Open(dir, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if n := len(s.Tickets().List); n != 0 {
		t.Errorf("%d tickets came back; one may have been used since", n)
	}
	if !strings.Contains(out.String(), "postern invite") {
		t.Errorf("the log does not say what to do: %s", out.String())
	}
}

func TestWhatCanBeLearnedAgainStartsEmpty(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	put(t, s, edge())
	if err := s.SetListenerPorts(map[Listener]uint16{{Peer: "edge", Service: "apiServer"}: 1}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	spoil(t, filepath.Join(dir, "observed.json"))
	s = mustOpen(t, dir)
	if s.ListenerPort("edge", "apiServer") != 0 || s.Peers().Len() != 1 {
		t.Error("want no ports and one peer")
	}
	if err := s.SetListenerPorts(map[Listener]uint16{{Peer: "edge", Service: "apiServer"}: 2}); err != nil {
		t.Errorf("the empty file cannot be written to: %v", err)
	}
}

// rewrite changes the version in a file's header.
func rewrite(t *testing.T, file, version string, body func([]byte) []byte) {
	t.Helper()
	line, rest, _ := bytes.Cut(read(t, file), []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		t.Fatal(err)
	}
	rest = body(rest)
	h.Version, h.Checksum = version, checksum(rest)
	line, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, append(append(line, '\n'), rest...))
}

func TestVersions(t *testing.T) {
	same := func(b []byte) []byte { return b }
	withMore := func(b []byte) []byte {
		return bytes.Replace(b, []byte(`"peers"`), []byte(`"weather": "fine", "peers"`), 1)
	}
	for _, c := range []struct {
		version string
		body    func([]byte) []byte
		want    error
	}{
		{"1.0", same, nil},
		{"1.7", withMore, nil},
		{"2.0", same, ErrNewerVersion},
		{"0.9", same, ErrDamaged},
		{"x", same, ErrDamaged},
	} {
		dir := two(t)
		file := filepath.Join(dir, "peers.json")
		rewrite(t, file, c.version, c.body)
		rewrite(t, file+".previous", c.version, c.body)
		before := files(t, dir)
		s, err := Open(dir, nil)
		if !errors.Is(err, c.want) {
			t.Errorf("version %s: got %v, want %v", c.version, err, c.want)
		}
		if err != nil {
			if diff := cmp.Diff(before, files(t, dir)); diff != "" {
				t.Errorf("version %s: the directory changed:\n%s", c.version, diff)
			}
			continue
		}
		if n := s.Peers().Len(); n != 2 {
			t.Errorf("version %s: %d peers, want 2", c.version, n)
		}
		mustClose(t, s)
	}
}

// TestWhatANewerVersionWroteStays: a gateway that is rolled back and forward again has lost
// nothing.
func TestWhatANewerVersionWroteStays(t *testing.T) {
	dir := two(t)
	s := mustOpen(t, dir)
	r := ticket.Records{List: records().List[:1]}
	if err := s.SaveTickets(r); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	for name, mark := range map[string]string{"peers.json": `"name"`, "tickets.json": `"id"`} {
		rewrite(t, filepath.Join(dir, name), "1.7", func(b []byte) []byte {
			b = bytes.Replace(b, []byte("{"), []byte(`{"weather": {"wind": [1, 2]},`), 1)
			return bytes.Replace(b, []byte(mark), []byte(`"mood": "new", `+mark), 1)
		})
	}
	s = mustOpen(t, dir)
	first := s.Peers().All()[0]
	first.Allow = append(first.Allow, "more")
	put(t, s, first)
	r = s.Tickets()
	r.List[0].Failures = 2
	if err := s.SaveTickets(r); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	for _, name := range []string{"peers.json", "tickets.json"} {
		if got := string(read(t, filepath.Join(dir, name))); strings.Count(got, "wind") != 1 || strings.Count(got, `"mood": "new"`) != 1 {
			t.Errorf("%s lost what a newer version wrote:\n%s", name, got)
		}
	}

	s = mustOpen(t, dir) // the fields are removed with their peer, and do not return with its name
	again := Peer{Name: first.Name, PublicKey: first.PublicKey}
	if err := s.Update(func(p *Peers) error { p.Remove(first.Name); return nil }); err != nil {
		t.Fatal(err)
	}
	put(t, s, again)
	if got := s.Tickets().List; len(got) != 1 || got[0].Failures != 2 {
		t.Errorf("the tickets are %+v", got)
	}
	mustClose(t, s)
	if got := string(read(t, filepath.Join(dir, "peers.json"))); strings.Contains(got, "mood") || !strings.Contains(got, "wind") {
		t.Errorf("after the peer was removed and added again:\n%s", got)
	}
}

func TestOlderVersionsAreMigrated(t *testing.T) {
	type motto struct{ Text string }
	rename := func(from, to string) func(json.RawMessage) (json.RawMessage, error) {
		return func(raw json.RawMessage) (json.RawMessage, error) {
			return bytes.Replace(raw, []byte(from), []byte(to), 1), nil
		}
	}
	f := format[motto]{
		name: "motto", major: 3,
		migrate: map[int]func(json.RawMessage) (json.RawMessage, error){1: rename("T1", "T2"), 2: rename("T2", "Text")},
		encode:  func(m motto) (any, error) { return m, nil },
		decode:  decodeJSON[motto], clone: func(m motto) motto { return m },
	}
	dir := t.TempDir()
	at := place{dir: dir, base: "motto.json", disk: osDisk(), logger: slog.New(slog.DiscardHandler)}
	body := []byte(`{"T1":"old"}`)
	write(t, at.path(""), []byte(fmt.Sprintf("{\"format\":\"postern/motto\",\"version\":\"1.4\",\"generation\":5,\"checksum\":%q}\n%s", checksum(body), body)))
	d, err := openDocument(at, f)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.load().Text; got != "old" {
		t.Errorf("got %q, want what version 1 had", got)
	}
	if err := d.update(func(m *motto) error { m.Text = "new"; return nil }); err != nil {
		t.Fatal(err)
	}
	if b := string(read(t, at.path(""))); !strings.Contains(b, `"version":"3.0","generation":6`) || !strings.Contains(b, "new") {
		t.Errorf("written back as %s", b)
	}
}

func FuzzParse(f *testing.F) {
	body := []byte("{\"peers\":[]}\n")
	f.Add([]byte(fmt.Sprintf("{\"format\":\"postern/peers\",\"version\":\"1.0\",\"generation\":1,\"checksum\":%q}\n%s", checksum(body), body)))
	f.Add([]byte("{}\n"))
	f.Add([]byte(""))
	d := &document[Peers]{place: place{base: "peers.json"}, format: peersFormat}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := d.parse(b); err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewerVersion) {
			t.Errorf("an error of neither kind: %v", err)
		}
		// Test data behind a valid checksum, which random data practically never has.
		_, _ = decodePeers(b)
		_, _ = decodeBook(b)
	})
}
