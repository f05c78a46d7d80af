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

	"github.com/postern-dev/postern/tunnel/peer"
)

// markFile says of which backend's term the directory is a copy.
const markFile = "term"

// documents are the names of all state files except the key, which has no header.
var documents = []string{"peers.json", "tickets.json", "identities.json", "observed.json", bootsFile, "relays.json", "overlay.json", "trial.json"}

const (
	keyFile   = "private.key"
	bootsFile = "boots.json"
)

// standing is how far a directory can be trusted next to a backend.
type standing int

const (
	// foreign: it was never a copy of the backend, or is another gateway's.
	foreign standing = iota
	// former: it was once a copy, and another gateway may have written the backend since.
	former
	// continuous: nobody else can have written since.
	continuous
)

// copyOf is one side's copy of a file.
type copyOf struct {
	generation uint64
	version    string // generation and checksum
	checksum   string
	ahead      string // the backend's version that it is newer than; empty: none
}

// choice is what to do with a file.
type choice int

const (
	takeNeither   choice = iota // there is none, or none that may be used
	takeDirectory               // and save it
	takeBackend                 // and write it to the directory
	takeEither                  // they are the same
)

// choose decides which copy of a file is used. here and there are nil if there is no intact copy;
// empty says that the backend has no files at all.
//
//	here      there     standing     counts
//	no        yes       any          the backend's
//	equal     equal     any          either
//	goes beyond what is there
//	                    former       the directory's: nobody wrote since
//	                    continuous   the directory's
//	else differs        any          the backend's
//	yes       no        continuous   the directory's: it was not saved yet, or was deleted
//	yes       no        foreign      the directory's if the backend is empty: it moves there
//	yes       no        else         none: it may be outdated
func choose(here, there *copyOf, s standing, empty bool) choice {
	switch {
	case here == nil && there == nil:
		return takeNeither
	case here == nil:
		return takeBackend
	case there == nil && (s == continuous || s == foreign && empty):
		return takeDirectory
	case there == nil:
		return takeNeither
	case here.checksum == there.checksum:
		return takeEither
	case s != foreign && here.ahead == there.version:
		return takeDirectory
	}
	return takeBackend
}

// reconciled is the result of reconcile for one file.
type reconciled struct {
	kept    string // the backend's version, "" if none
	there   []byte // the backend's file
	unsaved bool   // the directory's is used and has to be saved
	highest uint64 // the highest generation of both
}

// absent is the version of a file that the backend does not have.
const absent = "none"

func version(generation uint64, checksum string) string {
	return fmt.Sprintf("%d:%s", generation, checksum)
}

// inspect reads the header of a file; nil if it is missing or damaged.
func inspect(b []byte) *copyOf {
	line, body, ok := bytes.Cut(b, []byte("\n"))
	var h header
	if !ok || len(line) > maxHeader || json.Unmarshal(line, &h) != nil || h.Checksum != checksum(body) {
		return nil
	}
	return &copyOf{generation: h.Generation, version: version(h.Generation, h.Checksum), checksum: h.Checksum, ahead: h.Ahead}
}

// inspectKey is inspect for the key file.
func inspectKey(b []byte) *copyOf {
	text := bytes.TrimSpace(b)
	if len(text) == 0 {
		return nil
	}
	sum := checksum(text)
	return &copyOf{version: version(0, sum), checksum: sum}
}

// reconciler reconciles a directory with what was loaded from a backend, before the files are
// opened.
type reconciler struct {
	place
	there    map[string][]byte
	standing standing
	term     string
	hadKey   peer.PublicKey
}

// reconcile makes the directory hold what is to be used, and returns what the backend lacks. Only
// within the same term can it do without a backend that cannot be read.
func (r *reconciler) reconcile(loadErr error) (map[string]reconciled, error) {
	mark, err := os.ReadFile(filepath.Join(r.dir, markFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	last, marked := strings.CutSuffix(string(mark), "\n")
	switch {
	case marked && last == r.term && r.term != "":
		r.standing = continuous
	case marked:
		r.standing = former
	}
	if loadErr != nil {
		return r.alone(loadErr)
	}
	if err := r.sameGateway(); err != nil {
		return nil, err
	}
	out := make(map[string]reconciled)
	for _, name := range append([]string{keyFile}, documents...) {
		if out[name], err = r.file(name); err != nil {
			return nil, err
		}
	}
	if err := r.disk.replace(r.dir, markFile, []byte(r.term+"\n")); err != nil && !errors.Is(err, ErrNotDurable) {
		return nil, fmt.Errorf("open state directory: %w", remedy(err))
	}
	return out, nil
}

// alone uses the directory alone, if that is known to be right.
func (r *reconciler) alone(cause error) (map[string]reconciled, error) {
	if r.standing != continuous || errors.Is(cause, ErrFenced) {
		return nil, fmt.Errorf("read the state that is kept outside of this pod: %w", cause)
	}
	r.logger.Warn("failed to read the state stored outside this pod; using the directory of the same term and refusing changes until it can be written",
		slog.String("code", CodeNotKept), slog.Any("error", cause))
	out := make(map[string]reconciled)
	b, err := r.here(keyFile)
	if err != nil {
		return nil, err
	}
	out[keyFile] = reconciled{unsaved: b == nil}
	for _, name := range documents {
		if b, err = r.here(name); err != nil {
			return nil, err
		}
		c := inspect(b)
		switch {
		case c == nil && b != nil:
			return nil, fmt.Errorf("%s is %w, and the state that is kept outside of this pod cannot be read: %w", r.at(name), ErrDamaged, cause)
		case c == nil:
			out[name] = reconciled{kept: absent}
		case c.ahead != "":
			out[name] = reconciled{kept: c.ahead, unsaved: true, highest: c.generation}
		default:
			out[name] = reconciled{kept: c.version, highest: c.generation}
		}
	}
	return out, nil
}

// sameGateway lowers the standing of a directory with another gateway's key.
func (r *reconciler) sameGateway() error {
	b, err := r.here(keyFile)
	if err != nil {
		return err
	}
	here, there := inspectKey(b), inspectKey(r.there[keyFile])
	if here != nil && there != nil && here.checksum != there.checksum {
		r.standing = foreign
	}
	return nil
}

// here reads a file of the directory; nil if there is none.
func (r *reconciler) here(name string) ([]byte, error) {
	info, err := os.Stat(r.at(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("open state directory: %w", err)
	case info.Size() > maxFile:
		return nil, nil // damaged, as opening it will report
	}
	b, err := os.ReadFile(r.at(name))
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	return b, nil
}

func (r *reconciler) at(name string) string { return filepath.Join(r.dir, name) }

// file reconciles the two copies of one file.
func (r *reconciler) file(name string) (reconciled, error) {
	b, err := r.here(name)
	if err != nil {
		return reconciled{}, err
	}
	look := inspect
	if name == keyFile {
		look = inspectKey
	}
	data, present := r.there[name]
	here, there := look(b), look(data)
	out := reconciled{kept: absent, there: data}
	for _, c := range []*copyOf{here, there} {
		if c != nil {
			out.highest = max(out.highest, c.generation)
		}
	}
	if there != nil {
		out.kept = there.version
	}
	pick := choose(here, there, r.standing, len(r.there) == 0)
	if name == bootsFile && here != nil && (there == nil || lastBoot(b) > lastBoot(data)) {
		pick = takeDirectory // the number must never go back, wherever it is from
	}
	if name == keyFile && pick == takeNeither && r.isOurs(b) {
		pick = takeDirectory // someone deleted the other
	}
	switch {
	case pick == takeDirectory:
		out.unsaved = true
		r.logger.Info("state file in the directory is newer than the copy outside this pod", slog.String("file", name))
	case pick == takeEither:
	case pick == takeBackend, present:
		// Damage there is judged when the file is opened, like damage here.
		return out, r.install(name, data, b)
	default:
		return out, r.dismiss(name, b)
	}
	return out, nil
}

// isOurs reports whether a key file has the key that the gateway is known to have had.
func (r *reconciler) isOurs(b []byte) bool {
	k, err := peer.ParsePrivateKey(string(bytes.TrimSpace(b)))
	return err == nil && k.Public() == r.hadKey
}

// lastBoot returns the number in a boots file, 0 if there is none.
func lastBoot(b []byte) uint64 {
	_, body, _ := bytes.Cut(b, []byte("\n"))
	v, err := decodeJSON[boots](body)
	if err != nil {
		return 0
	}
	return v.Last
}

// install replaces the directory's copy with the backend's.
func (r *reconciler) install(name string, data, old []byte) error {
	if err := r.dismiss(name, old); err != nil {
		return err
	}
	if err := r.disk.replace(r.dir, name, data); err != nil && !errors.Is(err, ErrNotDurable) {
		return fmt.Errorf("write %s: %w", r.at(name), remedy(err))
	}
	return nil
}

// dismiss removes a file and its previous generation from the directory: neither may come back. A
// key is kept under another name, since its owner may want it.
func (r *reconciler) dismiss(name string, old []byte) error {
	if name == keyFile {
		if old == nil {
			return nil
		}
		if err := r.disk.keep(r.dir, name, name+previous); err != nil {
			return fmt.Errorf("keep %s: %w", r.at(name), remedy(err))
		}
		r.logger.Warn("private key in the state directory differs from the one stored outside this pod; using the latter",
			slog.String("keptAs", name+previous))
	}
	gone := []string{name, name + previous}
	if name == keyFile {
		gone = []string{name, nextKeyFile} // which was to follow the old one
	}
	for _, n := range gone {
		if err := os.Remove(r.at(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the outdated %s: %w", r.at(n), remedy(err))
		}
	}
	return nil
}
