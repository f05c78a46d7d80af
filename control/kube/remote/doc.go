// Package remote lets commands reach the gateway that runs in a cluster, from wherever
// kubectl would: it finds the active pod and runs `postern admin-stdio` in it (the exec
// subresource of pods: WebSocket, and SPDY where an API server or a proxy has only that).
// There is no admin port on TCP.
//
// # Sessions
//
// One exec is one connection to the gateway's admin socket, over which package admin's
// client speaks HTTP/1.1 and keeps it open, so that a screen that asks every second costs
// one exec. What runs in the pod says on its standard output that it has reached the
// socket, in one line ([Greeting]); from then on both directions are the connection's
// bytes. Before that line, its end is an error, and its standard error says which.
//
// # Rights
//
// Who runs a command needs, in the gateway's namespace, get and list of pods and create of
// pods/exec (API servers before 1.35 want get of it for WebSockets; without that SPDY is
// taken). Whoever may do that is the gateway's owner: it could read its Secrets by the same
// right.
package remote
