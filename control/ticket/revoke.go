package ticket

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Standing is the current state of a ticket.
type Standing struct {
	Info
	// Peer is the name of the peer that redeemed it and RedeemedBy its key; empty before.
	Peer       string
	RedeemedBy peer.PublicKey
}

// Standings lists the stored tickets in order of creation.
func (b *Book) Standings() []Standing {
	var list []Standing
	for _, r := range b.records.Load().List {
		list = append(list, Standing{Info: r.info(), Peer: r.By.Name, RedeemedBy: r.By.PublicKey})
	}
	return list
}

// ParseID parses [ID.String]'s result.
func ParseID(s string) (ID, error) {
	var id ID
	err := id.UnmarshalText([]byte(s))
	return id, err
}

// Revoke ends an open ticket as its deadline would. A ticket that is not open is left as it is; an
// unknown one is no error.
func (b *Book) Revoke(now time.Time, id ID) error {
	revoked := false
	err := b.change(now, func(e *edit) error {
		if r := e.find(byID(id)); r != nil && r.State == Open {
			r.ExpiresAt = e.now
			e.end(r, Expired)
			revoked = true
		}
		return nil
	})
	if err == nil && revoked {
		b.o.Audit.Record(context.Background(), audit.Expire, audit.Ticket(id.String()), audit.Reason("revoked"))
	}
	return err
}
