// Package state is a gateway's memory: its private key, the peers that joined it, the
// tickets it has made, and what it learned of its peers. It keeps them in one
// directory of small JSON files that survive a crash at any moment.
//
// # Files
//
//	private.key       the gateway's key, base64 with a line end, as wg genkey prints
//	peers.json        peers that joined or were added by command; never lost silently
//	tickets.json      the book of tickets
//	identities.json   identities that peers issued to us
//	observed.json     what can be learned again: endpoints, ports of local listeners
//	boots.json        the number of the last start, which peers are told
//	relays.json       allocations on TURN servers, which a restart may take up
//	NAME.previous     the generation before, for when the file is damaged
//	NAME.damaged-TIME a damaged file, kept for inspection
//	lock              held (flock) by the gateway that uses the directory; its pid
//
// Everything is readable by the owner only; a directory that others may enter is
// tightened if it is ours, and refused if it is somebody else's but root's. A file is two JSON documents: a header
// on the first line and the body behind it.
//
//	{"format":"postern/peers","version":"1.0","generation":7,"checksum":"sha256:…"}
//
// The checksum is over all bytes behind the first line end. A reader accepts an
// unknown newer minor version, refuses an unknown major one, and migrates older ones.
//
// # Writing
//
// A change is written to a temporary file in the same directory, synced, and renamed
// over the old one; then the directory is synced. Only then is it visible to readers,
// so what memory says is on disk. When anything fails the old file and the old
// memory stay. There is one exception: a right that is taken away is gone at once
// (Restrict), whatever the disk says.
//
// # Damage
//
// A file whose header or checksum does not fit is kept beside as NAME.damaged-TIME and
// the previous generation takes its place, with a warning. If that is damaged too, a
// gateway does not start without the peers it had: Open fails and touches nothing.
// The last generation of peers.json in which a peer was removed or lost a right is
// written twice, so that going back one generation never gives it back. Tickets are
// not taken from a previous generation, which may not know that a ticket was used:
// open tickets are then void. What can be learned again starts empty.
package state

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/postern-dev/postern/tunnel/peer"
)

// CodeDamaged is the code of the warning that a file was damaged.
const CodeDamaged = "PST0710"

var (
	// ErrInUse: another gateway uses the directory.
	ErrInUse = errors.New("the state directory is in use")
	// ErrDamaged: a file is damaged and nothing intact can take its place.
	ErrDamaged = errors.New("damaged")
	// ErrNewerVersion: a later postern wrote the file.
	ErrNewerVersion = errors.New("written by a newer postern")
	// ErrNotDurable: the change was made, but may not survive a power cut.
	ErrNotDurable = errors.New("the change is in the file but may not survive a power cut")
	// ErrNotStored: what was to be taken away counts no more, but the file still has it.
	ErrNotStored = errors.New("it is not in the file")
	// ErrDuplicate: two peers with one name or one key.
	ErrDuplicate = errors.New("duplicate peer")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the state directory was closed")
)

// Store is an open state directory. It is safe for concurrent use: readers see a
// snapshot and never wait for the disk, writers wait for each other.
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
}

// Open makes the directory if it is missing, locks it and reads what is there. A
// directory that another process has open is an [ErrInUse]. logger may be nil.
func Open(dir string, logger *slog.Logger) (*Store, error) {
	return open(dir, logger, osDisk())
}

func open(dir string, logger *slog.Logger, d disk) (s *Store, err error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if dir == "" {
		return nil, errors.New("open state directory: no directory given (spec.stateDir)")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if err := shutOut(dir, os.Geteuid(), logger); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = unlock(lock)
		}
	}()
	removeTemporary(dir)
	at := func(name string) place { return place{dir: dir, base: name, disk: d, logger: logger} }
	s = &Store{dir: dir, lock: lock, logger: logger}
	if s.peers, err = openDocument(at("peers.json"), peersFormat); err != nil {
		return nil, err
	}
	if s.tickets, err = openDocument(at("tickets.json"), ticketsFormat); err != nil {
		return nil, err
	}
	if s.identities, err = openDocument(at("identities.json"), identitiesFormat); err != nil {
		return nil, err
	}
	if s.observed, err = openDocument(at("observed.json"), observedFormat); err != nil {
		return nil, err
	}
	if s.boots, err = openDocument(at("boots.json"), bootsFormat); err != nil {
		return nil, err
	}
	if s.relays, err = openDocument(at("relays.json"), relaysFormat); err != nil {
		return nil, err
	}
	return s, nil
}

// Close lets another process open the directory. Changes after it fail.
func (s *Store) Close() error {
	if s.Unstored() {
		if err := s.Flush(); err != nil {
			s.logger.Warn("what was taken away from peers could not be stored and comes back at the next start; repeat it then",
				slog.Any("error", err))
		}
	}
	s.peers.close()
	s.tickets.close()
	s.identities.close()
	s.observed.close()
	s.boots.close()
	s.relays.close()
	return unlock(s.lock)
}

// Dir is the directory.
func (s *Store) Dir() string { return s.dir }

// PrivateKey reads the gateway's key from the directory and makes one if there is
// none.
func (s *Store) PrivateKey() (peer.PrivateKey, error) {
	return EnsurePrivateKey(filepath.Join(s.dir, "private.key"))
}

// Peers is the present set of peers. It is a snapshot: changing it changes nothing.
func (s *Store) Peers() Peers { return s.peers.load().clone() }

// Update changes the set of peers. f gets a copy; if it returns an error nothing
// changes and that error is returned. The change is on disk when Update returns nil.
// f must not call Update.
func (s *Store) Update(f func(*Peers) error) error {
	return s.peers.update(f)
}

// Restrict is Update for a change that takes rights away, which must not wait for a disk
// that is full: peers and grants that f removes are gone at once, and when this cannot be
// written the error is an [ErrNotStored]. It is then undone by a restart, unless [Store.Flush]
// or a later change succeeds before. Of what f adds nothing counts in that case, and
// when f only adds, nothing changes.
func (s *Store) Restrict(f func(*Peers) error) error {
	return s.peers.restrict(f)
}

// Unstored reports whether something was taken away that the file still has.
func (s *Store) Unstored() bool { return s.peers.unstored() }

// Lingers reports whether a peer was removed that the file still has.
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
		return // Open fails with a better message when it reads the files.
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
