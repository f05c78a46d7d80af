package mcs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/postern-dev/postern/control/bounded"
)

// A catalogue is what one gateway tells another that it exports. Its version is a digest of what is
// in it, so that it means the same to both after either has started again, and how much was missed
// does not matter: a message says from which version it leads on. One that leads on from nothing
// starts the catalogue over, which counts when all of it is there.

const (
	// MaxServices is how many services a peer may export to another.
	MaxServices = 2000
	// MaxCatalogue is how large their entries are together, in bytes of JSON.
	MaxCatalogue = 4 << 20
	// MaxMessage bounds a message, in bytes of JSON.
	MaxMessage = 32 << 10
	// A message has less than that many values, and bytes of entries.
	messageValues, messageBytes = 6000, MaxMessage - 4<<10
	maxGone                     = 128
	maxName                     = 2*MaxLabel + 1
)

// ErrTooMany refuses a catalogue of more than [MaxServices] or [MaxCatalogue], or than there is room for.
var ErrTooMany = fmt.Errorf("it has more than %d services or %d bytes, or than there is room for", MaxServices, MaxCatalogue)

// digest is the sum of those of the entries, whatever their order.
type digest [sha256.Size]byte

func (d *digest) flip(sum [sha256.Size]byte) {
	for i := range d {
		d[i] ^= sum[i]
	}
}

func (d digest) String() string { return hex.EncodeToString(d[:16]) }

// Nothing is the version of a catalogue without entries.
var Nothing = digest{}.String()

// Message is a part of a catalogue on its way.
type Message struct {
	Version string `json:"version" max:"64"`
	// Base is the version of the catalogue that it leads on from; empty starts over.
	Base string `json:"base" max:"64"`
	// Set are entries that are new or changed, Gone the names of those that are no more.
	Set  []json.RawMessage `json:"set,omitempty" max:"2000x24576"`
	Gone []string          `json:"gone,omitempty" max:"2000x127"`
	// More follows before the catalogue that started over is to count.
	More bool `json:"more,omitempty"`
	// Has is the version that the sender has of the reader's own catalogue; empty where it has none.
	Has string `json:"has,omitempty" max:"64"`
}

// ParseMessage reads a message of a peer.
func ParseMessage(body []byte) (Message, error) {
	var m Message
	err := bounded.Unmarshal(body, MaxMessage, &m)
	return m, err
}

// nameOf is the name that a text is, or none.
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
