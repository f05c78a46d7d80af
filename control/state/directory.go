package state

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
)

// CodeExposed is the code of the warning that others than the gateway's user may enter the state
// directory.
const CodeExposed = "PST0711"

// exposure is what to do about a state directory's owner and mode.
type exposure int

const (
	private   exposure = iota // nobody else may enter it
	tightened                 // it is ours, so access is removed
	tolerated                 // it is root's, who gave it to one of our groups
	refused                   // its owner could take over the gateway
)

// expose decides by the directory's owner and mode, for a gateway that runs as self. Whoever may
// write to the directory can replace the key or the peers.
//
// A volume in Kubernetes belongs to root and is open to the pod's fsGroup (mode 2770 or 2775). The
// gateway's user cannot change that, and the pod's other containers should not mount the volume. A
// directory open to everyone (an emptyDir's mount point has mode 0777) is refused: a directory
// below it can be private.
func expose(mode fs.FileMode, owner, self int) exposure {
	const group, others, othersWrite = 0o070, 0o007, 0o002
	switch open := mode.Perm()&(group|others) != 0; {
	case owner == self && open:
		return tightened
	case owner == self:
		return private
	case owner != 0 || mode.Perm()&othersWrite != 0:
		return refused
	case open:
		return tolerated
	}
	return private
}

// shutOut makes sure that only self, the gateway's user, can use the directory, or reports who can.
func shutOut(dir string, self int, logger *slog.Logger) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("open state directory: %s is a file (spec.stateDir names a directory)", dir)
	}
	owner, known := ownerOf(info)
	if !known {
		return nil // no such modes on this system
	}
	mode := info.Mode()
	switch expose(mode, owner, self) {
	case refused:
		return fmt.Errorf("state directory %s belongs to user %d, has mode %04o and may not be used by user %d: others could replace the gateway's key (choose another spec.stateDir, such as %s, which is then made with mode 0700)",
			dir, owner, octal(mode), self, dir+"/postern")
	case tolerated:
		logger.Warn("state directory is owned by root and open to its group, as Kubernetes volumes with an fsGroup are; make sure nobody else is in that group",
			slog.String("code", CodeExposed), slog.String("directory", dir), slog.String("mode", fmt.Sprintf("%04o", octal(mode))))
	case tightened:
		if err := os.Chmod(dir, mode&^0o077); err != nil {
			return fmt.Errorf("state directory %s has mode %04o, so others may enter it, and this cannot be changed: %w (chmod 700 %s)", dir, octal(mode), err, dir)
		}
		logger.Warn("closed the state directory to other users; if it was writable, compare `postern peer list` and `postern key pub` with what you expect",
			slog.String("code", CodeExposed), slog.String("directory", dir), slog.String("mode", fmt.Sprintf("%04o", octal(mode))))
	}
	return nil
}

// octal returns a mode as for chmod, with the bits above the permissions.
func octal(m fs.FileMode) uint32 {
	n := uint32(m.Perm())
	for bit, value := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			n |= value
		}
	}
	return n
}
