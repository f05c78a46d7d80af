package check

import (
	"regexp"
	"strings"
)

// placeholder is a word in a command that its reader has to replace.
var placeholder = regexp.MustCompile(`\b(NAME|FILE|DEVICE|ADDRESS|HOST|PORT|IP)\b`)

// Command is the one command or rule in a code's fix that is to be typed at this gateway.
// It is empty where the fix offers several, has a placeholder, leaves a decision to the
// reader, or sends him to the other side.
func Command(c Code, p Params) string {
	if !typedHere(c, p) {
		return ""
	}
	_, fix := Render(c, p)
	parts := strings.Split(fix, "`")
	if len(parts) != 3 || placeholder.MatchString(parts[1]) {
		return ""
	}
	return parts[1]
}

// typedHere reports whether the command that a code's fix may have is for who reads it.
//
//	PST0106 0201 0301 to 0304 0308 0502   for who offers the service
//	PST0101 0102                          for the one who is dialled
//	PST0107 0110 0506                     for who uses it
//	PST0202                               for both, inside the tunnel
//	PST0313 0320 0702 0710 08xx           for whoever has it, at this gateway in any case
func typedHere(c Code, p Params) bool {
	switch c {
	case PeerSilent, HandshakeStale, NotHeardByPeer, AuthRefused, APIServerRefused, APIServerTimeout, APIServerBroken,
		APIServerHTTP, APIServerSlow, TLSWrongName:
		return p.Inbound
	case NameUnknown, IdentityExpired:
		return !p.Inbound
	case WrongPeerKey:
		return !p.Inbound && p.Key == "" // else the key is asked of the peer's owner
	case AuthTimeout:
		return !p.Direct
	case UpstreamUnreachable, PeerServiceDown, ConfigRefused, StateDamaged,
		PeerHalfOpenLimit, TotalFlowLimit, SocketBufferSmall, CPUThrottled:
		return true
	}
	return false
}
