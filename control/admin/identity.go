package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/connlimit"
)

// identity identifies the client of a connection.
type identity struct {
	uid, gid int
	groups   []int // supplementary
	pid      int   // 0 if the system does not say
}

// errNoCredentials reports a system that cannot identify clients.
var errNoCredentials = errors.New("this system does not identify callers")

func ownIdentity() identity {
	return identity{uid: os.Geteuid(), gid: os.Getegid(), pid: os.Getpid()}
}

// right is what an endpoint requires.
type right int

const (
	// mayRead: the owner and the gateway's group.
	mayRead right = iota
	// mayChange: only the owner.
	mayChange
)

// allows reports whether who has the right at a gateway that runs as owner.
func (owner identity) allows(who identity, r right) bool {
	if who.uid == owner.uid || who.uid == 0 {
		return true
	}
	return r == mayRead && (who.gid == owner.gid || slices.Contains(who.groups, owner.gid))
}

type callerKey struct{}

// caller is who made a connection, or why that is not known.
type caller struct {
	identity identity
	err      error
}

// identify passes the caller of a connection on to its requests.
func identify(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, callerKey{}, c.(*connlimit.Conn).NetConn().(*conn).caller)
}

// authorize returns the caller, or the problem that it lacks the right.
func (s *Server) authorize(ctx context.Context, r right) (identity, *Error) {
	who, ok := ctx.Value(callerKey{}).(caller)
	if !ok || who.err != nil {
		s.log.Warn("admin request refused: caller unknown", "error", who.err)
		return identity{}, forbidden("the gateway cannot tell who asks", "")
	}
	if s.owner.allows(who.identity, r) {
		return who.identity, nil
	}
	s.log.Warn("admin request refused", "uid", who.identity.uid, "gid", who.identity.gid, "pid", who.identity.pid)
	hint := fmt.Sprintf("run it as the gateway's user, uid %d, or as root", s.owner.uid)
	if r == mayRead {
		return identity{}, forbidden(fmt.Sprintf("user %d may not read this gateway's status", who.identity.uid), fmt.Sprintf("%s, or in its group %d", hint, s.owner.gid))
	}
	return identity{}, forbidden(fmt.Sprintf("user %d may not change this gateway", who.identity.uid), hint)
}

func forbidden(message, hint string) *Error {
	return &Error{Problem: api.Problem{Message: message, Hint: hint}, Status: http.StatusForbidden}
}
