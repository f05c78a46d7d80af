package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// A site's disk is a small tmpfs, which only root can mount: `make faults` does so in its own
// mount namespace.

// filler is the file that fills a disk.
const filler = "filler"

// disksOfTheirOwn reports whether sites can have disks.
func disksOfTheirOwn() bool { return os.Geteuid() == 0 }

// mountDisk mounts a disk at dir until undo is called.
func mountDisk(dir string) (undo func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		return nil, fmt.Errorf("mount a disk at %s: %w", dir, err)
	}
	return func() {
		for unmount(dir) == nil { // it may be mounted twice
		}
	}, nil
}

func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }

// fill fills the disk of dir.
func fill(dir string) error {
	f, err := os.Create(filepath.Join(dir, filler))
	if err != nil {
		return err
	}
	defer f.Close()
	page := make([]byte, os.Getpagesize())
	for err == nil {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill the disk of %s: %w", dir, err)
	}
	return nil
}

// forbidWriting makes dir read-only until it is unmounted once.
func forbidWriting(dir string) error {
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s again: %w", dir, err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("mount %s read-only: %w", dir, err), unmount(dir))
	}
	return nil
}
