// Package egress opens TCP connections from this gateway to the outside: straight or, where it
// is told to, through an HTTP proxy with CONNECT (RFC 9110 §9.3.6) and Basic credentials.
//
// Which of the two an address takes is decided by the rules that HTTPS_PROXY and NO_PROXY have
// everywhere (golang.org/x/net/http/httpproxy). Through a proxy a name is not resolved here, as
// a network that has nothing but a proxy often resolves no names of the outside. What has to
// take the proxy never goes straight.
//
// What a proxy answers is read within bounds, and shown in the forms that its parts have.
package egress
