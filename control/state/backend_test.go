package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// errBroken is the error of a broken cell.
var errBroken = errors.New("the API server is away")

// cell is an in-memory backend whose faults are set by tests.
type cell struct {
	mu    sync.Mutex
	files map[string][]byte
	term  string
	// hadKey is the result of HadKey.
	hadKey peer.PublicKey
	saves  map[string]int
	// load and save return the error of a call; nil functions mean success. after: the save takes
	// effect, but returns the error.
	load func() error
	save func(ctx context.Context, name string) (err error, after bool)
}

func newCell() *cell { return &cell{files: map[string][]byte{}, saves: map[string]int{}, term: "a"} }

func (c *cell) Term() string { return c.term }

func (c *cell) HadKey() peer.PublicKey { return c.hadKey }

func (c *cell) Load(context.Context) (map[string][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.load != nil {
		if err := c.load(); err != nil {
			return nil, err
		}
	}
	return maps.Clone(c.files), nil
}

func (c *cell) Save(ctx context.Context, name string, data []byte) error {
	c.mu.Lock()
	fault := c.save
	c.mu.Unlock()
	var err error
	if fault != nil {
		var after bool
		if err, after = fault(ctx, name); err != nil && !after {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files[name] = bytes.Clone(data)
	c.saves[name]++
	return err
}

// setSave sets the function that determines the errors of saves; nil means success.
func (c *cell) setSave(f func(ctx context.Context, name string) (error, bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.save = f
}

func (c *cell) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saves[name]
}

func refuse(context.Context, string) (error, bool) { return errBroken, false }

// lose makes a call take effect and return an error.
func lose(context.Context, string) (error, bool) { return errBroken, true }

func hang(ctx context.Context, _ string) (error, bool) {
	<-ctx.Done()
	return ctx.Err(), false
}

// fresh returns a directory that only we may enter, so that there is no warning.
func fresh(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "state")
}

func openWith(t *testing.T, dir string, c *cell) *Store {
	t.Helper()
	s, err := Open(dir, nil, WithBackend(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// elsewhere opens the cell with an empty directory, as another pod does.
func elsewhere(t *testing.T, c *cell) *Store {
	t.Helper()
	c.setSave(nil)
	return openWith(t, fresh(t), c)
}

func TestAnEmptyDirectoryIsFilled(t *testing.T) {
	c := newCell()
	s := openWith(t, fresh(t), c)
	key, err := s.PrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, edge())
	endpoint := netip.MustParseAddrPort("198.51.100.7:40582")
	boot, err := s.Boot(time.UnixMilli(1000))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		s.SaveTickets(records()),
		s.SetIdentity(peer.PublicKey{1}, []byte("certificate"), []byte("key")),
		s.Proven(peer.PublicKey{1}, endpoint, time.Unix(1, 0)),
		s.SetRelays([]RelayGrant{{Server: "turn"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)

	c.term = "b"
	s = elsewhere(t, c)
	if again, err := s.PrivateKey(); err != nil || !again.Equal(key) {
		t.Errorf("the private key is another (%v)", err)
	}
	if diff := cmp.Diff([]Peer{edge()}, s.Peers().All(), same); diff != "" {
		t.Errorf("peers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(records(), s.Tickets(), same); diff != "" {
		t.Errorf("tickets (-want +got):\n%s", diff)
	}
	if cert, _, ok := s.Identity(peer.PublicKey{1}); !ok || string(cert) != "certificate" {
		t.Errorf("identity: got %q, %v", cert, ok)
	}
	if got := s.Observed(peer.PublicKey{1}).Endpoints; !slices.Equal(got, []netip.AddrPort{endpoint}) {
		t.Errorf("endpoints: got %v, want %v", got, endpoint)
	}
	if got := s.Relays(); len(got) != 1 {
		t.Errorf("relays: got %v, want one", got)
	}
	if next, err := s.Boot(time.UnixMilli(10)); err != nil || next != boot+1 {
		t.Errorf("boot number: got %d (%v), want %d although the clock went back", next, err, boot+1)
	}
}

func TestAGatewayThatHadADirectoryAloneMoves(t *testing.T) {
	dir := two(t)
	key, err := EnsurePrivateKey(filepath.Join(dir, keyFile))
	if err != nil {
		t.Fatal(err)
	}
	c := newCell()
	s := openWith(t, dir, c)
	if again, err := s.PrivateKey(); err != nil || !again.Equal(key) {
		t.Fatalf("the private key is another (%v)", err)
	}
	if s.Peers().Len() != 2 {
		t.Errorf("%d peers, want 2", s.Peers().Len())
	}
	mustClose(t, s)
	if s = elsewhere(t, c); s.Peers().Len() != 2 {
		t.Errorf("%d peers are kept, want 2", s.Peers().Len())
	}
	if again, err := s.PrivateKey(); err != nil || !again.Equal(key) {
		t.Errorf("the private key is another (%v)", err)
	}
}

func TestWhatTheBackendDoesNotTakeDoesNotCount(t *testing.T) {
	for name, fault := range map[string]func(context.Context, string) (error, bool){"refused": refuse, "lost on the way back": lose} {
		t.Run(name, func(t *testing.T) {
			c, dir := newCell(), fresh(t)
			s := openWith(t, dir, c)
			put(t, s, edge())
			if err := s.SaveTickets(ticket.Records{}); err != nil {
				t.Fatal(err)
			}
			before := files(t, dir)
			c.setSave(fault)
			for what, err := range map[string]error{
				"a peer":      s.Update(func(p *Peers) error { return p.Put(Peer{Name: "berlin", PublicKey: peer.PublicKey{9}}) }),
				"a ticket":    s.SaveTickets(records()),
				"an identity": s.SetIdentity(peer.PublicKey{1}, []byte("c"), []byte("k")),
				"a key":       func() error { _, err := s.PrivateKey(); return err }(),
			} {
				if !errors.Is(err, ErrBackend) || !errors.Is(err, errBroken) {
					t.Errorf("%s: got %v, want %v and the cause", what, err, ErrBackend)
				}
			}
			if _, _, ok := s.Identity(peer.PublicKey{1}); ok || s.Peers().Len() != 1 || len(s.Tickets().List) != 0 {
				t.Error("a change counts that was not kept")
			}
			after := files(t, dir)
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the directory changed (-before +after):\n%s", diff)
			}
			if err := s.Kept(); !errors.Is(err, errBroken) {
				t.Errorf("Kept: got %v, want %v", err, errBroken)
			}
			c.setSave(nil)
			put(t, s, edge())
			put(t, s, Peer{Name: "edge", PublicKey: edge().PublicKey})
			if err := s.Kept(); err != nil {
				t.Errorf("Kept: got %v although the last file was", err)
			}
			mustClose(t, s)
			s = elsewhere(t, c)
			if _, _, ok := s.Identity(peer.PublicKey{1}); ok || s.Peers().Len() != 1 || len(s.Tickets().List) != 0 {
				t.Error("a refused change is in force after the next start")
			}
		})
	}
}

// If a change is not in force, the gateway gets an error. However often and wherever this
// happens, the next gateway finds exactly what was acknowledged.
func TestEveryFailurePoint(t *testing.T) {
	const steps = 12
	for at := 0; at < steps; at += everyStep {
		for name, fault := range map[string]func(context.Context, string) (error, bool){"refused": refuse, "lost": lose} {
			t.Run(fmt.Sprintf("%s at %d", name, at), func(t *testing.T) {
				c := newCell()
				s := openWith(t, fresh(t), c)
				var model Peers
				for i := 1; i <= steps; i++ {
					if i-1 == at {
						c.setSave(fault)
					}
					if i-1 == at+2 {
						c.setSave(nil)
					}
					if err := s.Update(func(p *Peers) error { return step(p, i) }); err == nil {
						if err := step(&model, i); err != nil {
							t.Fatal(err)
						}
					}
					if diff := cmp.Diff(model.All(), s.Peers().All(), same); diff != "" {
						t.Fatalf("after step %d (-acknowledged +in force):\n%s", i, diff)
					}
				}
				c.setSave(nil)
				mustClose(t, s)
				if diff := cmp.Diff(model.All(), elsewhere(t, c).Peers().All(), same); diff != "" {
					t.Errorf("(-acknowledged +found by the next):\n%s", diff)
				}
			})
		}
	}
}

func TestADirectoryThatFailsUndoesNothing(t *testing.T) {
	c := newCell()
	s := openWith(t, fresh(t), c)
	defer fill(s)()
	put(t, s, edge())
	if s.Peers().Len() != 1 || s.Unstored() || elsewhere(t, c).Peers().Len() != 1 {
		t.Error("a change that the backend has does not count")
	}
}

func remove(s *Store) error {
	return s.Restrict(func(p *Peers) error { p.Remove("edge"); return nil })
}

func TestARemovalThatTheBackendDoesNotTakeLasts(t *testing.T) {
	for name, c := range map[string]struct {
		term   string
		others bool // another gateway has written the peers in between
		there  bool // edge exists again
	}{
		"in the same term":                        {term: "a"},
		"in another, if nobody wrote":             {term: "b"},
		"but not over what somebody else decided": {term: "b", others: true, there: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, dir := newCell(), fresh(t)
			s := openWith(t, dir, b)
			put(t, s, edge())
			b.setSave(refuse)
			if err := remove(s); !errors.Is(err, ErrNotStored) || !errors.Is(err, ErrBackend) || strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("got %v, want %v", err, ErrNotStored)
			}
			if s.Peers().Len() != 0 || !s.Unstored() || !s.Lingers("edge") {
				t.Error("the removal does not count at once")
			}
			mustClose(t, s)
			b.setSave(nil)
			b.term = "b"
			if c.others {
				other := openWith(t, t.TempDir(), b)
				put(t, other, Peer{Name: "berlin", PublicKey: peer.PublicKey{9}})
				put(t, other, Peer{Name: "tokyo", PublicKey: peer.PublicKey{8}})
				mustClose(t, other)
			}
			b.term = c.term
			s = openWith(t, dir, b)
			if _, there := s.Peers().Get("edge"); there != c.there {
				t.Errorf("edge is there: %v, want %v", there, c.there)
			}
			mustClose(t, s)
			if _, there := elsewhere(t, b).Peers().Get("edge"); there != c.there {
				t.Errorf("for the next, edge is there: %v, want %v", there, c.there)
			}
		})
	}
}

func TestWhatAnotherGatewayDidIsNotUndoneByAnOldDirectory(t *testing.T) {
	c, dir := newCell(), fresh(t)
	s := openWith(t, dir, c)
	put(t, s, edge())
	if err := s.SaveTickets(ticket.Records{List: records().List[:1]}); err != nil {
		t.Fatal(err)
	}
	for i := range 9 { // the old directory has a high generation
		put(t, s, Peer{Name: "berlin", PublicKey: peer.PublicKey{9}, Ticket: fmt.Sprint(i)})
	}
	mustClose(t, s)
	for i, gone := range []bool{false, true} { // gone: an operator deleted them
		c.term = "b"
		other := openWith(t, fresh(t), c)
		if err := remove(other); err != nil {
			t.Fatal(err)
		}
		if err := other.SaveTickets(records()); err != nil {
			t.Fatal(err)
		}
		mustClose(t, other)
		if gone {
			delete(c.files, "peers.json")
			delete(c.files, "tickets.json")
		}
		c.term = fmt.Sprint("c", i)
		s = openWith(t, dir, c)
		if _, there := s.Peers().Get("edge"); there {
			t.Errorf("files deleted: %v: a removed peer is back", gone)
		}
		if got := len(s.Tickets().List); !gone && got != 2 || gone && got != 0 {
			t.Errorf("files deleted: %v: %d tickets", gone, got)
		}
		mustClose(t, s)
	}
}

func TestTheKeyOfTheBackendCounts(t *testing.T) {
	c := newCell()
	key, err := openWith(t, fresh(t), c).PrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := two(t)
	old, err := EnsurePrivateKey(filepath.Join(dir, keyFile))
	if err != nil {
		t.Fatal(err)
	}
	s := openWith(t, dir, c)
	if got, err := s.PrivateKey(); err != nil || !got.Equal(key) || s.Peers().Len() != 0 {
		t.Errorf("another gateway's directory counts: %d peers (%v)", s.Peers().Len(), err)
	}
	if kept, err := LoadPrivateKey(filepath.Join(dir, keyFile+previous)); err != nil || !kept.Equal(old) {
		t.Errorf("its key was not kept: %v", err)
	}
}

func TestABackendThatIsAwayAtTheStart(t *testing.T) {
	c, dir := newCell(), fresh(t)
	s := openWith(t, dir, c)
	put(t, s, edge())
	if _, err := s.PrivateKey(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	c.load = func() error { return errBroken }
	for _, other := range []struct{ dir, term string }{{dir, "b"}, {t.TempDir(), "a"}, {dir, ""}} {
		c.term = other.term
		if _, err := Open(other.dir, nil, WithBackend(c)); !errors.Is(err, errBroken) {
			t.Errorf("term %q: got %v, want %v", other.term, err, errBroken)
		}
	}
	c.term = "a"
	var out bytes.Buffer
	s, err := Open(dir, slog.New(slog.NewTextHandler(&out, nil)), WithBackend(c))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PrivateKey(); err != nil || s.Peers().Len() != 1 || !strings.Contains(out.String(), CodeNotKept) {
		t.Errorf("%d peers (%v), log %q; want one and a warning", s.Peers().Len(), err, out.String())
	}
	put(t, s, Peer{Name: "berlin", PublicKey: peer.PublicKey{9}}) // the backend answers again
	mustClose(t, s)
	c.load = nil
	if n := elsewhere(t, c).Peers().Len(); n != 2 {
		t.Errorf("%d peers, want 2", n)
	}
}

func TestDamageElsewhereIsNoticed(t *testing.T) {
	c := newCell()
	s := openWith(t, fresh(t), c)
	put(t, s, edge())
	if err := s.SaveTickets(records()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	c.term = "b"
	c.files["tickets.json"][200] ^= 0x20
	var out bytes.Buffer
	s, err := Open(fresh(t), slog.New(slog.NewTextHandler(&out, nil)), WithBackend(c))
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	if len(s.Tickets().List) != 0 || !strings.Contains(out.String(), CodeDamaged) {
		t.Errorf("%d tickets, log %q; want none and a warning", len(s.Tickets().List), out.String())
	}
	out.Reset()
	if s, err = Open(fresh(t), slog.New(slog.NewTextHandler(&out, nil)), WithBackend(c)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	if out.Len() > 0 {
		t.Errorf("the next start complains again: %s", out.String())
	}
	c.files["peers.json"][150] ^= 0x20
	if _, err := Open(fresh(t), nil, WithBackend(c)); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v, want %v", err, ErrDamaged)
	}
}

func TestAFencedGatewayWritesNothing(t *testing.T) {
	c := newCell()
	s := openWith(t, fresh(t), c)
	put(t, s, edge())
	c.setSave(func(context.Context, string) (error, bool) { return ErrFenced, false })
	berlin := func(p *Peers) error { return p.Put(Peer{Name: "berlin", PublicKey: peer.PublicKey{9}}) }
	if err := s.Update(berlin); !errors.Is(err, ErrFenced) {
		t.Errorf("got %v, want %v", err, ErrFenced)
	}
	c.setSave(nil)
	if err := s.Update(berlin); !errors.Is(err, ErrFenced) {
		t.Errorf("later: got %v, want %v", err, ErrFenced)
	}
	if err := s.Proven(peer.PublicKey{1}, netip.MustParseAddrPort("192.0.2.1:1"), time.Unix(1, 0)); err != nil {
		t.Error(err)
	}
	mustClose(t, s)
	if c.count("peers.json") != 1 || c.count("observed.json") != 0 {
		t.Errorf("it was written %v", c.saves)
	}
}

func TestNobodyWaitsLongForABackendThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		s := openWith(t, fresh(t), c)
		put(t, s, edge())
		c.setSave(hang)
		berlin := func(p *Peers) error { return p.Put(Peer{Name: "berlin", PublicKey: peer.PublicKey{9}}) }
		for i, longest := range []time.Duration{saveTimeout, briefTimeout, briefTimeout} { // these may wait for a probe
			start := time.Now()
			if err := s.Update(berlin); !errors.Is(err, ErrBackend) {
				t.Errorf("got %v, want %v", err, ErrBackend)
			}
			if took := time.Since(start); took > longest {
				t.Errorf("change %d took %v, want at most %v", i, took, longest)
			}
		}
		time.Sleep(awayFor)
		start := time.Now()
		if err := remove(s); !errors.Is(err, ErrNotStored) || s.Peers().Len() != 0 {
			t.Errorf("got %v and %d peers, want %v and none", err, s.Peers().Len(), ErrNotStored)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("a removal took %v, want at most 5s", took)
		}
		start = time.Now()
		for i := range 100 { // readers, and writes of what can be learned again, wait for nothing
			if err := s.Proven(peer.PublicKey{1}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 1), time.Now()); err != nil {
				t.Error(err)
			}
		}
		if s.Peers().Len() != 0 || time.Since(start) > 0 {
			t.Errorf("%d peers after %v", s.Peers().Len(), time.Since(start))
		}
		time.Sleep(awayFor)
		start = time.Now()
		mustClose(t, s)
		if took := time.Since(start); took > closeTimeout {
			t.Errorf("Close took %v, want at most %v", took, closeTimeout)
		}
	})
}

func TestWhoeverMustEndNowWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		s := openWith(t, t.TempDir(), c)
		c.setSave(hang)
		result := make(chan error)
		go func() { result <- s.Update(func(p *Peers) error { return p.Put(edge()) }) }()
		synctest.Wait()
		start := time.Now()
		s.Interrupt()
		if err := <-result; !errors.Is(err, ErrBackend) || time.Since(start) > 0 {
			t.Errorf("got %v after %v, want %v at once", err, time.Since(start), ErrBackend)
		}
		if err := remove(s); err != nil { // there is no such peer, so nothing has to be saved
			t.Error(err)
		}
		if err := s.SaveTickets(records()); !errors.Is(err, ErrBackend) || time.Since(start) > 0 {
			t.Errorf("got %v after %v, want %v at once", err, time.Since(start), ErrBackend)
		}
		c.setSave(nil)
		mustClose(t, s)
		if elsewhere(t, c).Peers().Len() != 0 {
			t.Error("a refused change is in force")
		}
	})
}

func TestChangesAreTakenAgainWhenTheBackendAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		s := openWith(t, fresh(t), c)
		c.setSave(hang)
		if err := s.Update(func(p *Peers) error { return p.Put(edge()) }); !errors.Is(err, ErrBackend) {
			t.Errorf("got %v, want %v", err, ErrBackend)
		}
		c.setSave(nil)
		time.Sleep(saveTimeout + retryAfter)
		put(t, s, edge())
		mustClose(t, s)
	})
}

func TestWhatCanBeLearnedAgainIsSavedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		s := openWith(t, fresh(t), c)
		start := time.Now()
		for i := range 600 { // ten minutes with a change a second
			if err := s.Proven(peer.PublicKey{1}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 1), time.Now()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n, most := c.count("observed.json"), int(time.Since(start)/lazyEvery)+1; n > most || n < most-1 {
			t.Errorf("saved %d times, want %d", n, most)
		}
		last := netip.MustParseAddrPort("198.51.100.1:1")
		if err := s.Proven(peer.PublicKey{1}, last, time.Now()); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		c.term = "b"
		s = elsewhere(t, c)
		if got := s.Observed(peer.PublicKey{1}).Endpoints; len(got) == 0 || got[0] != last {
			t.Errorf("the last endpoint is %v, want %v", got, last)
		}
		mustClose(t, s)
	})
}

func TestWhatWasLearnedBeforeAKillIsInTheDirectory(t *testing.T) {
	c, dir := newCell(), fresh(t)
	s := openWith(t, dir, c)
	c.setSave(refuse)
	want := netip.MustParseAddrPort("198.51.100.1:1")
	if err := s.Proven(peer.PublicKey{1}, want, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	c.setSave(nil)
	if got := openWith(t, killed, c).Observed(peer.PublicKey{1}).Endpoints; !slices.Equal(got, []netip.AddrPort{want}) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheHigherBootNumberCounts(t *testing.T) {
	c, dir := newCell(), fresh(t)
	s := openWith(t, dir, c)
	c.setSave(refuse)
	number, err := s.Boot(time.UnixMilli(5000))
	if !errors.Is(err, ErrBackend) || number != 5000 {
		t.Errorf("got %d, %v; want 5000 and %v", number, err, ErrBackend)
	}
	mustClose(t, s)
	c.setSave(nil)
	c.term = "b"
	other := openWith(t, fresh(t), c)
	if _, err := other.Boot(time.UnixMilli(4000)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, other)
	if next, err := openWith(t, dir, c).Boot(time.UnixMilli(10)); err != nil || next != 4001 {
		t.Errorf("got %d (%v), want 4001", next, err)
	}
}

func TestChoose(t *testing.T) {
	v := func(generation uint64, sum, ahead string) *copyOf {
		return &copyOf{generation: generation, version: version(generation, sum), checksum: sum, ahead: ahead}
	}
	for _, c := range []struct {
		name        string
		here, there *copyOf
		standing    standing
		empty       bool
		want        choice
	}{
		{"nothing anywhere", nil, nil, continuous, true, takeNeither},
		{"an empty directory", nil, v(7, "x", ""), foreign, false, takeBackend},
		{"the same", v(7, "x", ""), v(7, "x", ""), former, false, takeEither},
		{"the same, counted otherwise", v(8, "x", ""), v(7, "x", ""), former, false, takeEither},
		{"beyond it, in the same term", v(8, "y", version(7, "x")), v(7, "x", ""), continuous, false, takeDirectory},
		{"beyond it, in another term", v(8, "y", version(7, "x")), v(7, "x", ""), former, false, takeDirectory},
		{"beyond it, of another gateway", v(8, "y", version(7, "x")), v(7, "x", ""), foreign, false, takeBackend},
		{"beyond what it was", v(9, "y", version(7, "x")), v(8, "z", ""), continuous, false, takeBackend},
		{"beyond the same number of another", v(8, "y", version(7, "x")), v(7, "z", ""), former, false, takeBackend},
		{"a higher number alone", v(9, "y", ""), v(8, "x", ""), continuous, false, takeBackend},
		{"a lower number", v(7, "x", ""), v(8, "y", ""), continuous, false, takeBackend},
		{"not saved yet", v(1, "x", ""), nil, continuous, false, takeDirectory},
		{"deleted there, an old directory", v(1, "x", ""), nil, former, false, takeNeither},
		{"all deleted there, an old directory", v(1, "x", ""), nil, former, true, takeNeither},
		{"moves there", v(1, "x", ""), nil, foreign, true, takeDirectory},
		{"another gateway's", v(1, "x", ""), nil, foreign, false, takeNeither},
	} {
		if got := choose(c.here, c.there, c.standing, c.empty); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// moment is the state after a kill: the directory and the backend.
type moment struct {
	dir   string
	files map[string][]byte
	step  int // that was in progress
}

// TestAKillAtEveryMoment ends the process and the pod before and after each Save, and after each
// change. The next gateway must find what was acknowledged, with or without the change in
// progress.
func TestAKillAtEveryMoment(t *testing.T) {
	c, dir := newCell(), fresh(t)
	s := openWith(t, dir, c)
	var moments []moment
	now := 0
	snapshot := func() {
		to := fresh(t)
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			t.Error(err)
		}
		if err := os.Chmod(to, 0o700); err != nil {
			t.Error(err)
		}
		moments = append(moments, moment{to, maps.Clone(c.files), now})
	}
	c.setSave(func(context.Context, string) (error, bool) { snapshot(); return nil, false })
	models := []Peers{{}}
	for i := 1; i <= 12; i++ {
		now = i
		model := models[i-1].clone()
		if err := step(&model, i); err != nil {
			t.Fatal(err)
		}
		models = append(models, model)
		if err := s.Update(func(p *Peers) error { return step(p, i) }); err != nil {
			t.Fatal(err)
		}
		snapshot()
	}
	for n, m := range moments {
		for _, term := range []string{"a", "b"} {
			c := &cell{files: maps.Clone(m.files), saves: map[string]int{}, term: term}
			to := fresh(t)
			if err := os.CopyFS(to, os.DirFS(m.dir)); err != nil {
				t.Fatal(err)
			}
			got := openWith(t, to, c).Peers().All()
			if !cmp.Equal(got, models[m.step].All(), same) && !cmp.Equal(got, models[m.step-1].All(), same) {
				t.Errorf("moment %d in step %d, term %s: %v", n, m.step, term, got)
			}
		}
	}
	if len(moments) < 24 {
		t.Errorf("%d moments were tried, want 24", len(moments))
	}
}
