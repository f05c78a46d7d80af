package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// tempPrefix is the prefix of temporary files.
const tempPrefix = ".tmp-"

// disk is the part of the file system that writing needs; tests make its parts fail.
type disk struct {
	write   func(f *os.File, b []byte) error
	sync    func(f *os.File) error
	rename  func(from, to string) error
	link    func(from, to string) error
	syncDir func(dir string) error
}

func osDisk() disk {
	return disk{
		write:   func(f *os.File, b []byte) error { _, err := f.Write(b); return err },
		sync:    (*os.File).Sync,
		rename:  os.Rename,
		link:    os.Link,
		syncDir: syncDir,
	}
}

// temporary writes b to a synced temporary file in dir and returns its name.
func (d disk) temporary(dir string, b []byte) (name string, err error) {
	f, err := os.CreateTemp(dir, tempPrefix+"*") // mode 0600
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := d.write(f, b); err != nil {
		return "", err
	}
	if err := d.sync(f); err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// replace replaces dir/name with b, atomically. If it fails with an [ErrNotDurable] the new file is
// in place; otherwise the old one is.
func (d disk) replace(dir, name string, b []byte) error {
	temp, err := d.temporary(dir, b)
	if err != nil {
		return err
	}
	if err := d.rename(temp, filepath.Join(dir, name)); err != nil {
		_ = os.Remove(temp)
		return err
	}
	if err := d.syncDir(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	return nil
}

// succeed is replace, but keeps the old file as as, replacing any file of that name. If it fails
// and the old file is in place, the one called as is unchanged, too.
func (d disk) succeed(dir, name, as string, b []byte) error {
	before, err := d.second(dir, name, as)
	if err != nil {
		return err
	}
	err = d.replace(dir, name, b)
	switch {
	case before == "":
	case err == nil || errors.Is(err, ErrNotDurable):
		if renameErr := d.rename(before, filepath.Join(dir, as)); renameErr != nil && err == nil {
			err = fmt.Errorf("%w: %w", ErrNotDurable, renameErr)
		}
	default:
		_ = os.Remove(before)
	}
	return err
}

// keep gives dir/name a second name, replacing any file of that name. Both are intact at any
// moment. A missing file is no error.
func (d disk) keep(dir, name, as string) error {
	temp, err := d.second(dir, name, as)
	if err != nil || temp == "" {
		return err
	}
	if err := d.rename(temp, filepath.Join(dir, as)); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return nil
}

// second gives dir/name a temporary second name, to be renamed to as; "" if there is no such file.
func (d disk) second(dir, name, as string) (temp string, err error) {
	from := filepath.Join(dir, name)
	temp = filepath.Join(dir, tempPrefix+as)
	_ = os.Remove(temp)
	err = d.link(from, temp)
	switch {
	case err == nil:
		return temp, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	}
	b, err := os.ReadFile(from) // some file systems have no hard links
	if err != nil {
		return "", err
	}
	return d.temporary(dir, b)
}

// remedy adds advice to the errors of a disk that rejects writes, if nothing was changed. nil stays
// nil.
func remedy(err error) error {
	if errors.Is(err, ErrNotDurable) {
		return err
	}
	return advised(err, "; nothing was changed")
}

// advised adds advice, followed by a remark. nil stays nil.
func advised(err error, remark string) error {
	switch {
	case errors.Is(err, ErrBackend):
		return fmt.Errorf("%w%s", err, remark)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w (free some space%s)", err, remark)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w (mount it writable or choose another spec.stateDir%s)", err, remark)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (the directory must belong to the user that the gateway runs as%s)", err, remark)
	}
	return err
}
