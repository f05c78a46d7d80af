//go:build !linux

package lab

import "errors"

const filler = "filler"

var errNoDisks = errors.New("there are no disks of their own here")

func disksOfTheirOwn() bool { return false }

func mountDisk(string) (undo func(), err error) { return nil, errNoDisks }

func unmount(string) error { return errNoDisks }

func fill(string) error { return errNoDisks }

func forbidWriting(string) error { return errNoDisks }
