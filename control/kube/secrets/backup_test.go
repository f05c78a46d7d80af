package secrets

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/state"
)

func TestABackupSurvivesTheLossOfEverything(t *testing.T) {
	v := newVault()
	b := backend(t, v, "a")
	load(t, b)
	for file := range places {
		save(t, b, file, "it is "+file)
	}
	kept, err := Copy{v, "postern"}.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tie := range []string{"ownerReferences", "resourceVersion", WriterAnnotation} {
		if strings.Contains(string(kept), tie) {
			t.Errorf("the backup has a %s:\n%s", tie, kept)
		}
	}
	for _, release := range []string{"postern", "edge-postern"} {
		t.Run(release, func(t *testing.T) {
			lost := newVault()
			if err := (Copy{lost, release}).Restore(t.Context(), kept, false); err != nil {
				t.Fatal(err)
			}
			for name, x := range lost.objects {
				if len(x.OwnerReferences) > 0 {
					t.Errorf("%s belongs to %+v, with which it would go", name, x.OwnerReferences)
				}
			}
			next := backend(t, lost, "b")
			next.o.Release = release
			got := load(t, next)
			for file := range places {
				want := "it is " + file
				if file == "tickets.json" { // one that was used since would be open again
					want = ""
				}
				if got[file] != want {
					t.Errorf("%s: got %q, want %q", file, got[file], want)
				}
			}
		})
	}
}

func TestARestoreReplacesAnotherKeyByForceAlone(t *testing.T) {
	v := newVault()
	b := backend(t, v, "a")
	load(t, b)
	save(t, b, "private.key", "old")
	save(t, b, "peers.json", "p")
	kept, err := Copy{v, "postern"}.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	save(t, b, "private.key", "new")
	save(t, b, "tickets.json", "t")
	c := Copy{v, "postern"}
	if err := c.Restore(t.Context(), kept, false); !errors.Is(err, ErrOtherKey) {
		t.Errorf("got %v, want %v", err, ErrOtherKey)
	}
	if v.file("postern-state-key", "private.key") != "new" {
		t.Error("it was replaced")
	}
	if err := c.Restore(t.Context(), kept, true); err != nil {
		t.Fatal(err)
	}
	if key, tickets := v.file("postern-state-key", "private.key"), v.file("postern-state-tickets", "tickets.json"); key != "old" || tickets != "" {
		t.Errorf("by force: the key is %q, want that of the backup, and the tickets %q, which it lacks", key, tickets)
	}
}

func TestWhatIsNoBackup(t *testing.T) {
	for what, text := range map[string]string{
		"nothing":         "",
		"no YAML":         "{",
		"no key":          "items: [{metadata: {name: postern-state-peers}, type: postern.dev/state, data: {peers.json: aw==}}]",
		"an empty list":   "apiVersion: v1\nkind: List\nitems: []",
		"another type":    "items: [{metadata: {name: postern-state-key}, type: Opaque, data: {private.key: aw==}}]",
		"another name":    "items: [{metadata: {name: postern-state-other}, type: postern.dev/state}]",
		"another file":    "items: [{metadata: {name: postern-state-key}, type: postern.dev/state, data: {peers.json: aw==}}]",
		"a Secret of two": "items: [{metadata: {name: a-state-key}, type: postern.dev/state}, {metadata: {name: b-state-key}, type: postern.dev/state}]",
	} {
		v := newVault()
		if err := (Copy{v, "postern"}).Restore(t.Context(), []byte(text), true); !errors.Is(err, ErrNoBackup) || len(v.objects) > 0 {
			t.Errorf("%s: got %v and %d Secrets, want %v and none", what, err, len(v.objects), ErrNoBackup)
		}
	}
}

func TestNothingToBackUp(t *testing.T) {
	v := newVault()
	c := Copy{v, "postern"}
	if _, err := c.Backup(t.Context()); !errors.Is(err, ErrNoState) || !strings.Contains(err.Error(), "postern-state-key") {
		t.Errorf("got %v, want %v and the names", err, ErrNoState)
	}
	b := backend(t, v, "a")
	load(t, b)
	save(t, b, "peers.json", "p")
	if _, err := c.Backup(t.Context()); !errors.Is(err, ErrNoState) || !strings.Contains(err.Error(), "postern-state-key") {
		t.Errorf("without a key: got %v, want %v and the name", err, ErrNoState)
	}
	v.objects["postern-state-key"] = &corev1.Secret{Type: corev1.SecretTypeOpaque}
	if _, err := c.Backup(t.Context()); err == nil || !strings.Contains(err.Error(), "not this gateway's") {
		t.Errorf("got %v, want an error that it belongs to someone else", err)
	}
}

// Restoring a backup fences a running gateway.
func TestABackupThatIsRestoredEndsTheGatewayThatRuns(t *testing.T) {
	watched(t, func(t *testing.T, v *vault, b *Backend, told func() []check.OwnProblem) {
		fenced := 0
		b.o.OnFenced = func() { fenced++ }
		c := Copy{v, "postern"}
		kept, err := c.Backup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		save(t, b, "peers.json", "later")
		if err := c.Restore(t.Context(), kept, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * watchEvery)
		told()
		if err := b.Save(t.Context(), "peers.json", []byte("later still")); !errors.Is(err, state.ErrFenced) || fenced != 1 {
			t.Errorf("got %v, told %d times; want %v once", err, fenced, state.ErrFenced)
		}
		if got := load(t, backend(t, v, "b"))["peers.json"]; got != "p" {
			t.Errorf("the next gateway has %q, want the restored file", got)
		}
	})
}
