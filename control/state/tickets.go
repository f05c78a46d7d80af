package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Tickets returns the book as last stored. It makes the store a [ticket.Storage].
func (s *Store) Tickets() ticket.Records { return s.tickets.load().Records }

// SaveTickets stores the book.
func (s *Store) SaveTickets(r ticket.Records) error {
	return s.tickets.update(func(b *book) error {
		b.Records = r
		return nil
	})
}

// book wraps the records for the document.
type book struct {
	ticket.Records
	aside   []Aside
	unknown map[ticket.ID]Unknown // of the tickets in the file; immutable
}

func (b book) clone() book {
	b.List = slices.Clone(b.List)
	return b
}

type bookJSON struct {
	Seen    time.Time    `json:"seen,omitzero"`
	Tickets []recordJSON `json:"tickets"`
	Aside   []Aside      `json:"aside,omitempty"`
}

// recordJSON is the file format of a ticket. It contains secrets in the clear.
type recordJSON struct {
	ID        ticket.ID       `json:"id"`
	Inviter   *peer.PublicKey `json:"inviter,omitempty"`
	OneTime   peer.PublicKey  `json:"oneTimeKey"`
	Tunnel    string          `json:"tunnelPresharedKey,omitempty"`
	Reply     string          `json:"replyMAC"`
	Peer      string          `json:"peerKey"`
	Name      string          `json:"name,omitempty"`
	For       *peer.PublicKey `json:"for,omitempty"`
	Allow     []string        `json:"allow,omitempty"`
	Approve   bool            `json:"approve,omitempty"`
	Object    string          `json:"object,omitempty"`
	CreatedAt time.Time       `json:"createdAt"`
	ExpiresAt time.Time       `json:"expiresAt"`
	State     ticket.State    `json:"state"`
	Failures  int             `json:"failures,omitempty"`
	EndedAt   time.Time       `json:"endedAt,omitzero"`
	By        *redeemerJSON   `json:"by,omitempty"`
	unknown   Unknown
}

func (j recordJSON) MarshalJSON() ([]byte, error) {
	type plain recordJSON
	return j.unknown.marshal(plain(j))
}

type redeemerJSON struct {
	PublicKey    peer.PublicKey `json:"publicKey"`
	Name         string         `json:"name"`
	PresharedKey string         `json:"presharedKey,omitempty"`
	Allow        []string       `json:"allow,omitempty"`
	Approved     bool           `json:"approved"`
	At           time.Time      `json:"at"`
}

var ticketStates = []ticket.State{ticket.Open, ticket.Redeemed, ticket.Finished, ticket.Expired, ticket.Burned, ticket.Closed}

var ticketsFormat = format[book]{
	name: "tickets", major: 1,
	encode: encodeBook, decode: decodeBook, clone: book.clone,
	loss:             "open tickets are void; make new ones with postern invite",
	previousIsUnsafe: true,
}

func encodeBook(b book) (any, error) {
	out := bookJSON{Seen: b.Seen.Round(0).UTC(), Tickets: []recordJSON{}, Aside: b.aside}
	for _, r := range b.List {
		j := recordJSON{
			ID: r.ID, OneTime: r.OneTime, Tunnel: presharedText(r.Tunnel), Reply: r.Reply.Base64(), Peer: r.Peer.Base64(),
			Name: r.Name, Allow: r.Allow, Approve: r.Approve, Object: r.Object,
			CreatedAt: r.CreatedAt.Round(0).UTC(), ExpiresAt: r.ExpiresAt.Round(0).UTC(), State: r.State, Failures: r.Failures, EndedAt: r.EndedAt.Round(0).UTC(),
			unknown: b.unknown[r.ID],
		}
		if !r.Inviter.IsZero() {
			j.Inviter = &r.Inviter
		}
		if !r.For.IsZero() {
			j.For = &r.For
		}
		if by := r.By; !by.PublicKey.IsZero() {
			j.By = &redeemerJSON{
				PublicKey: by.PublicKey, Name: by.Name, PresharedKey: presharedText(by.PresharedKey),
				Allow: by.Allow, Approved: by.Approved, At: by.At.Round(0).UTC(),
			}
		}
		out.Tickets = append(out.Tickets, j)
	}
	return out, nil
}

// decodeBook sets aside the entries that cannot be read, or that repeat a ticket: of two, the used
// one is kept.
func decodeBook(raw json.RawMessage) (book, error) {
	var in struct {
		Seen    time.Time         `json:"seen"`
		Tickets []json.RawMessage `json:"tickets"`
		Aside   []Aside           `json:"aside"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return book{}, err
	}
	b := book{Records: ticket.Records{Seen: in.Seen}, unknown: map[ticket.ID]Unknown{}}
	b.aside = sieve(in.Tickets, in.Aside, func(entry json.RawMessage) (string, error) {
		var j recordJSON
		if err := json.Unmarshal(entry, &j); err != nil {
			return j.ID.String(), err
		}
		r, err := j.record()
		if err != nil {
			return j.ID.String(), err
		}
		i := slices.IndexFunc(b.List, func(o ticket.Record) bool { return o.ID == r.ID || o.OneTime == r.OneTime })
		switch {
		case i < 0:
			b.List = append(b.List, r)
			b.unknown[r.ID] = unknownOf(entry, j)
			return "", nil
		case b.List[i].State == ticket.Open && r.State != ticket.Open:
			b.List[i] = r
			b.unknown[r.ID] = unknownOf(entry, j)
		}
		return j.ID.String(), errors.New("another entry is of the same ticket")
	})
	return b, nil
}

func (j recordJSON) record() (ticket.Record, error) {
	r := ticket.Record{
		ID: j.ID, OneTime: j.OneTime, Name: j.Name, Allow: j.Allow, Approve: j.Approve, Object: j.Object,
		CreatedAt: j.CreatedAt, ExpiresAt: j.ExpiresAt, State: j.State, Failures: j.Failures, EndedAt: j.EndedAt,
	}
	err := checkKey(j.OneTime)
	if err != nil {
		return r, fmt.Errorf("one-time key: %w", err)
	}
	if !slices.Contains(ticketStates, j.State) {
		return r, fmt.Errorf("there is no state %.20q", j.State)
	}
	if r.Tunnel, err = parsePreshared(j.Tunnel); err != nil {
		return r, err
	}
	if r.Reply, err = ticket.ParseKey(j.Reply); err != nil {
		return r, err
	}
	if r.Peer, err = ticket.ParseKey(j.Peer); err != nil {
		return r, err
	}
	if j.Inviter != nil {
		r.Inviter = *j.Inviter
	}
	if j.For != nil {
		r.For = *j.For
	}
	if j.By != nil {
		r.By = ticket.Redeemer{PublicKey: j.By.PublicKey, Name: j.By.Name, Allow: j.By.Allow, Approved: j.By.Approved, At: j.By.At}
		r.By.PresharedKey, err = parsePreshared(j.By.PresharedKey)
	}
	return r, err
}
