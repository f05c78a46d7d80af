//go:build !linux && !darwin && !freebsd

package admin

import "net"

func peerCredentials(net.Conn) (identity, error) { return identity{}, errNoCredentials }
