package admin

import (
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups bounds the supplementary groups that are read. A client with more is judged by its
// primary group alone.
const maxGroups = 1024

// peerCredentials asks the kernel who connected (SO_PEERCRED, SO_PEERGROUPS; unix(7), socket(7)).
// Both date from the time of the connection.
func peerCredentials(c net.Conn) (identity, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return identity{}, fmt.Errorf("%T is no Unix socket", c)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return identity{}, err
	}
	var (
		cred   *unix.Ucred
		groups []int
		errOpt error
	)
	err = raw.Control(func(fd uintptr) {
		cred, errOpt = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		groups = peerGroups(fd)
	})
	if err == nil {
		err = errOpt
	}
	if err != nil {
		return identity{}, fmt.Errorf("ask for the peer's credentials: %w", err)
	}
	return identity{uid: int(cred.Uid), gid: int(cred.Gid), groups: groups, pid: int(cred.Pid)}, nil
}

// peerGroups is empty if the kernel is older than 4.13 or the client has too many.
func peerGroups(fd uintptr) []int {
	var gids [maxGroups]uint32
	size := uint32(unsafe.Sizeof(gids))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&gids)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil
	}
	var groups []int
	for _, gid := range gids[:min(size/4, maxGroups)] {
		groups = append(groups, int(gid))
	}
	return groups
}
