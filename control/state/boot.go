package state

import (
	"fmt"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// boots counts the starts of the gateway.
type boots struct {
	Last uint64 `json:"last"`
	// PublicKey is that of the last start whose key was in the directory: where there is none
	// any more, it was lost.
	PublicKey peer.PublicKey `json:"publicKey,omitzero"`
}

func (b boots) clone() boots { return b }

var bootsFormat = format[boots]{
	name: "boots", major: 1,
	encode: func(b boots) (any, error) { return b, nil },
	decode: decodeJSON[boots], clone: boots.clone,
	loss: "the number of the last start; the clock gives the next one",
}

// Boot gives this start of the gateway a number that is greater than every one before,
// by which peers tell that it has restarted. It is the clock's milliseconds since 1970, so
// that a copy of the gateway that is started beside it has another number, or one more than
// the last number where the clock has been set back or was never set: a number
// goes back only when both the file and the clock are lost. It is called after PrivateKey. When it cannot be stored, the
// number and the error are both given; it is good unless the clock goes back.
func (s *Store) Boot(now time.Time) (uint64, error) {
	next := max(s.boots.load().Last+1, uint64(max(now.UnixMilli(), 0)))
	err := s.boots.update(func(b *boots) error {
		b.Last = next
		if k := s.key.Load(); k != nil {
			b.PublicKey = k.Public()
		}
		return nil
	})
	if err != nil {
		return next, fmt.Errorf("remember the number of this start: %w", err)
	}
	return next, nil
}
