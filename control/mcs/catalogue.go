package mcs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/postern-dev/postern/control/bounded"
)

// A catalogue is what one gateway announces to another that it exports. Its version is a digest of
// the content. So it means the same to both after a restart of either, and it does not matter how
// much was missed: a message says which version it is based on. A message based on no version
// starts the catalogue over, which takes effect when it is complete.

const (
	// MaxServices is how many services a peer may export to another.
	MaxServices = 2000
	// MaxCatalogue bounds the sum of their entries, in bytes of JSON.
	MaxCatalogue = 4 << 20
	// MaxMessage bounds a message, in bytes of JSON.
	MaxMessage = 32 << 10
	// A message has fewer values and bytes of entries than these.
	messageValues, messageBytes = 6000, MaxMessage - 4<<10
	maxGone                     = 128
	maxName                     = 2*MaxLabel + 1
)

// ErrTooMany rejects a catalogue with more than [MaxServices] or [MaxCatalogue], or without room
// for it.
var ErrTooMany = fmt.Errorf("it has more than %d services or %d bytes, or than there is room for", MaxServices, MaxCatalogue)

// digest combines the entries' digests, in any order.
type digest [sha256.Size]byte

func (d *digest) flip(sum [sha256.Size]byte) {
	for i := range d {
		d[i] ^= sum[i]
	}
}

func (d digest) String() string { return hex.EncodeToString(d[:16]) }

// Nothing is the version of an empty catalogue.
var Nothing = digest{}.String()

// Message is a change of a catalogue, or a part of one.
type Message struct {
	Version string `json:"version" max:"64"`
	// Base is the version of the catalogue that it is based on; empty starts over.
	Base string `json:"base" max:"64"`
	// Set are new or changed entries, Gone the names of removed ones.
	Set  []json.RawMessage `json:"set,omitempty" max:"2000x24576"`
	Gone []string          `json:"gone,omitempty" max:"2000x127"`
	// More says that more messages follow before the new catalogue is complete.
	More bool `json:"more,omitempty"`
	// Has is the version that the sender has of the reader's own catalogue; empty if it has none.
	Has string `json:"has,omitempty" max:"64"`
}

// ParseMessage parses a peer's message.
func ParseMessage(body []byte) (Message, error) {
	var m Message
	err := bounded.Unmarshal(body, MaxMessage, &m)
	return m, err
}

// nameOf parses a name; zero if it is invalid.
func nameOf(s string) Name {
	for i := range len(s) {
		if s[i] == '/' {
			if n := (Name{s[:i], s[i+1:]}); isLabel(n.Namespace) && isLabel(n.Name) {
				return n
			}
			break
		}
	}
	return Name{}
}
