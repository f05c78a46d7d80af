// Package state stores a gateway's persistent state: its private key, the peers that joined, the
// tickets it has issued, and what it learned about its peers. It consists of one directory of small
// JSON files that survive a crash at any moment.
//
// # Files
//
//	private.key       the gateway's key, base64 with a line end, as wg genkey prints
//	peers.json        peers that joined or were added by command; never lost silently
//	tickets.json      the book of tickets
//	identities.json   identities that peers issued to us
//	observed.json     what can be learned again: endpoints, ports of local listeners
//	boots.json        the number of the last start, which peers are told, and its public key
//	relays.json       allocations on TURN servers, which a restart may take up
//	overlay.json      overlay ports of services of this cluster
//	trial.json        the configuration before one that is tried
//	NAME.previous     the generation before, for when the file is damaged
//	NAME.damaged-TIME a damaged file, kept for inspection
//	term              of which backend's term the directory is a copy, where there is one
//	lock              held (flock) by the gateway that uses the directory; its pid
//
// Everything is readable by the owner only. A directory that others may enter is tightened if it is
// ours, and refused if it belongs to anyone else but root. A file is two JSON documents: a header
// on the first line, followed by the body.
//
//	{"format":"postern/peers","version":"1.0","generation":7,"checksum":"sha256:…"}
//
// The checksum covers all bytes after the first line end. A reader accepts an unknown newer minor
// version, refuses an unknown major one, and migrates older ones. Fields of a document, a peer or a
// ticket that a newer minor version wrote are preserved.
//
// # Writing
//
// A change is written to a temporary file in the same directory, synced, and renamed over the old
// one; then the directory is synced. Only then do readers see it, so memory never runs ahead of the
// disk. If anything fails the old file and the old memory stay. There is one exception: a
// revocation (Restrict) is in force at once, whatever the disk says.
//
// # Copies outside of the directory
//
// If the directory does not outlive the gateway, as in a pod, a [Backend] stores copies of the
// files (control/kube/secrets). A change is in force once the backend has it. It is then written to
// the directory, where a failure is only a warning. After a failed Save nothing has changed; but
// the backend may have got it, so the current content is saved over it as soon as the backend
// answers. What can be learned again (observed.json, relays.json) is in force at once and saved at
// most every 30 s and at the end.
//
// A revocation (Restrict) is in force at once, as always. If the backend does not store it, it is
// written to the directory alone. The header of such a file, like that of one that can be learned
// again, names the version that it is newer than:
//
//	"ahead":"7:sha256:…"
//
// At Open the backend's files are used, except where the directory's is newer: its "ahead" is
// exactly the backend's version, so nobody has written since. A merely higher generation proves
// nothing: two gateways may have counted on from the same one. So a used ticket or a removed peer
// stays so, whichever gateway did it. A file that only the directory has is used only if nobody
// else can have been active since (the file "term" has the name of the backend's term), or if the
// whole backend is empty and the directory was never a copy: then it is saved there. The boot
// number is the higher one of the two. A key that only the directory has is used if the backend
// knows from elsewhere that it is the gateway's ([Witness]).
//
// If the backend cannot be read at Open, Open fails, except in the same term, as after a restart of
// the process within a pod. A backend that does not answer delays a change by 5 s at most (a
// removal by 4 s, after which it is in force anyway); readers never wait.
//
// # Damage
//
// A file with a wrong header or checksum is kept as NAME.damaged-TIME, and the previous generation
// is used instead, with a warning. If that is damaged too, the gateway does not start without the
// peers it had: Open fails and changes nothing. The last generation of peers.json in which a peer
// was removed or lost a right is written twice, so that going back one generation never restores
// it. Tickets are not read from a previous generation, which may not know that a ticket was used:
// open tickets are then void. What can be learned again starts empty.
//
// A file that is intact but has an entry that cannot be read or conflicts with another one is not
// damaged: that entry is set aside ([Aside]), and the others are used.
package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/postern-dev/postern/tunnel/peer"
)

// CodeDamaged is the code of the warning that a file was damaged.
const CodeDamaged = "PST0710"

var (
	// ErrInUse: another gateway uses the directory.
	ErrInUse = errors.New("the state directory is in use")
	// ErrKeyLost: the gateway had a private key, and it is gone.
	ErrKeyLost = errors.New("the gateway's private key is lost")
	// ErrDamaged: a file is damaged and nothing intact can replace it.
	ErrDamaged = errors.New("damaged")
	// ErrNewerVersion: a later postern wrote the file.
	ErrNewerVersion = errors.New("written by a newer postern")
	// ErrNotDurable: the change was made, but may not survive a power cut.
	ErrNotDurable = errors.New("the change is in the file but may not survive a power cut")
	// ErrNotStored: the revocation is in force, but the file does not have it.
	ErrNotStored = errors.New("it is not in the file")
	// ErrDuplicate: two peers with one name or one key.
	ErrDuplicate = errors.New("duplicate peer")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the state directory was closed")
)

// Store is an open state directory. It is safe for concurrent use: readers see a snapshot and never
// wait for the disk, writers wait for each other.
type Store struct {
	dir    string
	lock   *os.File
	logger *slog.Logger

	peers      *document[Peers]
	tickets    *document[book]
	identities *document[identities]
	observed   *document[observed]
	boots      *document[boots]
	relays     *document[relayGrants]
	overlay    *document[overlayLeases]
	trial      *document[Trial]

	mirror *mirror // nil: no backend
	// hadKey is what the backend attests to.
	hadKey peer.PublicKey
	// keyKept: the backend has the private key. Only PrivateKey's caller uses it.
	keyKept bool
	// key is PrivateKey's last result.
	key atomic.Pointer[peer.PrivateKey]
	// successions are the last ones of peers since Open, by identity name.
	successions sync.Map
}

// Open creates the directory if it is missing, locks it and reads it. A directory that another
// process has open is an [ErrInUse]. logger may be nil.
func Open(dir string, logger *slog.Logger, opts ...Option) (*Store, error) {
	return open(dir, logger, osDisk(), opts...)
}

func open(dir string, logger *slog.Logger, d disk, opts ...Option) (s *Store, err error) {
	var o options
	for _, set := range opts {
		set(&o)
	}
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	if dir == "" {
		return nil, errors.New("open state directory: no directory given (spec.stateDir)")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w (create it with the gateway's user as its owner, or choose another spec.stateDir)", err)
	}
	if err := shutOut(dir, os.Geteuid(), logger); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	s = &Store{dir: dir, lock: lock, logger: logger}
	opened := s
	defer func() {
		if err == nil {
			return
		}
		if opened.mirror != nil {
			opened.mirror.stop()
		}
		_ = unlock(lock)
	}()
	removeTemporary(dir)
	var found map[string]reconciled
	if o.backend != nil {
		if found, err = s.load(o.backend, d); err != nil {
			return nil, err
		}
		s.keyKept = !found[keyFile].unsaved && found[keyFile].kept != absent
	}
	if err := s.openDocuments(d); err != nil {
		return nil, err
	}
	if s.mirror != nil {
		s.follow(found)
	}
	s.tellAside()
	s.tellLost()
	return s, nil
}

// load reconciles the directory and the backend.
func (s *Store) load(b Backend, d disk) (map[string]reconciled, error) {
	s.mirror = newMirror(b, s.logger)
	there, err := s.mirror.load()
	r := reconciler{place: place{dir: s.dir, disk: d, logger: s.logger}, there: there}
	if t, ok := b.(Tenure); ok {
		r.term = t.Term()
	}
	if w, ok := b.(Witness); ok {
		s.hadKey = w.HadKey()
		r.hadKey = s.hadKey
	}
	return r.reconcile(err)
}

// follow connects the documents to the backend and starts saving.
func (s *Store) follow(found map[string]reconciled) {
	s.peers.follow(s.mirror, found["peers.json"])
	s.tickets.follow(s.mirror, found["tickets.json"])
	s.identities.follow(s.mirror, found["identities.json"])
	s.observed.follow(s.mirror, found["observed.json"])
	s.boots.follow(s.mirror, found[bootsFile])
	s.relays.follow(s.mirror, found["relays.json"])
	s.overlay.follow(s.mirror, found["overlay.json"])
	s.trial.follow(s.mirror, found["trial.json"])
	go s.mirror.run(s.mirror.ctx)
}

func (s *Store) openDocuments(d disk) (err error) {
	at := func(name string) place { return place{dir: s.dir, base: name, disk: d, logger: s.logger} }
	s.peers = openNext(at("peers.json"), peersFormat, &err)
	s.tickets = openNext(at("tickets.json"), ticketsFormat, &err)
	s.identities = openNext(at("identities.json"), identitiesFormat, &err)
	s.observed = openNext(at("observed.json"), observedFormat, &err)
	s.boots = openNext(at(bootsFile), bootsFormat, &err)
	s.relays = openNext(at("relays.json"), relaysFormat, &err)
	s.overlay = openNext(at("overlay.json"), overlayFormat, &err)
	s.trial = openNext(at("trial.json"), trialFormat, &err)
	return err
}

// Close lets another process open the directory. Later changes fail. What the backend lacks is
// saved, within 5 s.
func (s *Store) Close() error {
	if s.mirror != nil {
		defer s.mirror.finish()()
	}
	if s.Unstored() {
		if err := s.Flush(); err != nil {
			s.logger.Warn("failed to store revocations; they are lost at the next start: repeat them then",
				slog.Any("error", err))
		}
	}
	if s.mirror != nil {
		s.mirror.rest()
	}
	s.peers.close()
	s.tickets.close()
	s.identities.close()
	s.observed.close()
	s.boots.close()
	s.relays.close()
	s.overlay.close()
	s.trial.close()
	return unlock(s.lock)
}

// Kept returns why the last file could not be stored outside the directory; nil if it could, or if
// there is no backend.
func (s *Store) Kept() error {
	if s.mirror == nil {
		return nil
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	return s.mirror.failure
}

// Interrupt stops all waiting for the backend: current and later saves fail. Close still saves what
// it can. It is for a gateway that must stop now.
func (s *Store) Interrupt() {
	if s.mirror != nil {
		s.mirror.stop()
	}
}

// Dir returns the directory.
func (s *Store) Dir() string { return s.dir }

// PrivateKey reads the gateway's key from the directory, or creates one if there never was one; if
// it is gone, it returns an [ErrKeyLost]. A key that the backend neither has nor accepts is not
// used: after a restart the gateway would have another. One goroutine at a time may call it.
func (s *Store) PrivateKey() (peer.PrivateKey, error) {
	file := filepath.Join(s.dir, keyFile)
	k, err := LoadPrivateKey(file)
	made := errors.Is(err, fs.ErrNotExist)
	switch {
	case made:
		k, err = s.firstKey()
	case errors.Is(err, peer.ErrKey):
		err = s.keyLost(err)
	}
	if err != nil {
		return peer.PrivateKey{}, err
	}
	if s.mirror != nil && (made || !s.keyKept) {
		if _, err := s.mirror.save(keyFile, keyText(k), firmly); err != nil {
			return peer.PrivateKey{}, fmt.Errorf("store the private key: %w", err)
		}
		s.keyKept = true
	}
	if made {
		k, err = putPrivateKey(file, k)
	}
	if err == nil {
		s.key.Store(&k)
	}
	return k, err
}

// firstKey creates a key for a gateway that never had one.
func (s *Store) firstKey() (peer.PrivateKey, error) {
	if err := s.keyLost(nil); err != nil {
		return peer.PrivateKey{}, err
	}
	return peer.NewPrivateKey()
}

// keyLost returns an [ErrKeyLost] with what to do if the gateway had a key, and otherwise the cause.
func (s *Store) keyLost(cause error) error {
	had := s.hadKey
	if had.IsZero() {
		had = s.boots.load().PublicKey
	}
	if had.IsZero() {
		return cause
	}
	what := ""
	if cause != nil {
		what = ": " + cause.Error()
	}
	fix := fmt.Sprintf("put %s back from a backup; to begin as another gateway, move %s away", keyFile, s.dir)
	if s.mirror != nil {
		fix = "`postern state restore` puts a backup back; to begin as another gateway, uninstall the release and install it again"
	}
	return fmt.Errorf("%w%s: this gateway had %s, and with another key no peer would know it (%s)", ErrKeyLost, what, had, fix)
}

// Peers returns the current set of peers. It is a snapshot: changing it has no effect.
func (s *Store) Peers() Peers { return s.peers.load().clone() }

// Update changes the set of peers. f gets a copy; if it returns an error nothing changes and Update
// returns that error. The change is on disk when Update returns nil. f must not call Update.
func (s *Store) Update(f func(*Peers) error) error {
	return s.peers.update(f)
}

// Restrict is Update for a revocation, which must not depend on a full disk: peers and grants that
// f removes are gone at once. If this cannot be written the error is an [ErrNotStored], and a
// restart restores them unless [Store.Flush] or a later change succeeds before. In that case
// nothing that f adds is in force, and if f only adds, nothing changes.
func (s *Store) Restrict(f func(*Peers) error) error {
	return s.peers.restrict(f)
}

// Unstored reports whether the file still has something that was revoked.
func (s *Store) Unstored() bool { return s.peers.unstored() }

// Lingers reports whether the file still has a peer that was removed.
func (s *Store) Lingers(name string) bool {
	_, stored := s.peers.stored.Load().value.Get(name)
	_, there := s.peers.load().Get(name)
	return stored && !there
}

// Flush writes what [Store.Restrict] could not.
func (s *Store) Flush() error { return s.peers.flush() }

// removeTemporary removes what a crash left behind. The caller holds the lock.
func removeTemporary(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // Open fails with a better message when it reads the files
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
