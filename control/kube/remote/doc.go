// Package remote connects commands to the gateway in a cluster, from wherever kubectl works: it
// finds the active pod and runs `postern admin-stdio` in it (the exec subresource of pods, by
// WebSocket, or by SPDY if an API server or a proxy supports nothing else). There is no admin
// port on TCP.
//
// # Sessions
//
// One exec is one connection to the gateway's admin socket. Package admin's client speaks
// HTTP/1.1 over it and keeps it open, so that a screen with a request every second needs one
// exec. The program in the pod writes one line ([Greeting]) to its standard output when it has
// connected to the socket; from then on both directions carry the connection's bytes. If it ends
// before that line, that is an error, described on its standard error.
//
// # Rights
//
// A user needs, in the gateway's namespace, get and list of pods and create of pods/exec (API
// servers before 1.35 require get of it for WebSockets; without that, SPDY is used). A user with
// these permissions is the gateway's owner: they also suffice to read its Secrets.
package remote
