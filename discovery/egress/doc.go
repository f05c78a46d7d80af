// Package egress opens outgoing TCP connections: directly or, if so configured, through an HTTP
// proxy with CONNECT (RFC 9110 §9.3.6) and Basic credentials.
//
// The usual rules of HTTPS_PROXY and NO_PROXY decide which addresses use the proxy
// (golang.org/x/net/http/httpproxy). Through a proxy, names are not resolved here: a network
// whose only exit is a proxy often cannot resolve outside names. A connection that must use the
// proxy never bypasses it.
//
// A proxy's answer is read up to a limit, and its parts are shown only in their expected forms.
package egress
