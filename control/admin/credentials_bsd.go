//go:build darwin || freebsd

package admin

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerCredentials asks the kernel who connected (LOCAL_PEERCRED, unix(4)).
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
		cred   *unix.Xucred
		errOpt error
	)
	err = raw.Control(func(fd uintptr) {
		cred, errOpt = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	})
	if err == nil {
		err = errOpt
	}
	if err != nil {
		return identity{}, fmt.Errorf("ask for the peer's credentials: %w", err)
	}
	who := identity{uid: int(cred.Uid), gid: -1}
	for i, gid := range cred.Groups[:max(0, min(int(cred.Ngroups), len(cred.Groups)))] {
		if i == 0 {
			who.gid = int(gid)
		}
		who.groups = append(who.groups, int(gid))
	}
	return who, nil
}
