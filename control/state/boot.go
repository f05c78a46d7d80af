package state

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// boots counts the starts of the gateway.
type boots struct {
	Last uint64 `json:"last"`
	// PublicKey is the one of the last start with a key in the directory: if there is no key now,
	// it was lost.
	PublicKey peer.PublicKey `json:"publicKey,omitzero"`
	// Peers: peers.json existed at the last start.
	Peers bool `json:"peers,omitzero"`
}

func (b boots) clone() boots { return b }

var bootsFormat = format[boots]{
	name: "boots", major: 1,
	encode: func(b boots) (any, error) { return b, nil },
	decode: decodeJSON[boots], clone: boots.clone,
	loss: "the number of the last start; the clock gives the next one",
}

// Boot returns a number for this start of the gateway that is greater than all earlier ones; peers
// use it to notice restarts. It is the clock's milliseconds since 1970, so that a copy of the
// gateway that is started beside it has another number. If the clock was set back or never set, it
// is the last number plus one. So a number goes back only if both the file and the clock are lost.
// Call it after PrivateKey. If it cannot be stored, Boot returns both the number and the error; the
// number is good unless the clock goes back.
func (s *Store) Boot(now time.Time) (uint64, error) {
	createErr := s.peers.create()
	next := max(s.boots.load().Last+1, uint64(max(now.UnixMilli(), 0)))
	err := s.boots.update(func(b *boots) error {
		b.Last, b.Peers = next, s.peers.stored.Load().generation != 0
		if k := s.key.Load(); k != nil {
			b.PublicKey = k.Public()
		}
		return nil
	})
	if err = cmp.Or(err, createErr); err != nil {
		return next, fmt.Errorf("remember the number of this start: %w", err)
	}
	return next, nil
}

// tellLost warns if the file of peers is gone. A gateway may be started so on purpose.
func (s *Store) tellLost() {
	if s.boots.load().Peers && s.peers.stored.Load().generation == 0 {
		s.logger.Warn("state file missing; starting without the peers in it",
			slog.String("code", CodeDamaged), slog.String("file", s.peers.path("")))
	}
}
