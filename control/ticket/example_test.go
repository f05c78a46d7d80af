package ticket_test

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// A ticket is a text that one operator gives to another. It can be decoded without a gateway, and
// damage is distinguished from other texts.
func ExampleDecode() {
	inviter, err := peer.ParsePublicKey("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=")
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := ticket.Ticket{
		Seed: ticket.SeedFromBytes([32]byte{1}), Inviter: inviter, Name: "cloud",
		Expires: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Allow: []string{"auth", "apiServer"},
		Candidates: []ticket.Candidate{{Addr: netip.MustParseAddrPort("203.0.113.8:51820"), Source: "advertised"}},
	}.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}

	t, err := ticket.Decode(text)
	fmt.Println(t.Name, t.Allow, t.Candidates[0].Addr, err)
	_, err = ticket.Decode(text[:100])
	fmt.Println(err)
	_, err = ticket.Decode("hunter2")
	fmt.Println(errors.Is(err, ticket.ErrNotTicket))
	fmt.Println(t) // the seed is a secret
	// Output:
	// cloud [auth apiServer] 203.0.113.8:51820 <nil>
	// a part of the ticket is missing; copy the whole line
	// true
	// (ticket of cloud, hidden)
}
