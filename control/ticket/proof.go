package ticket

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/postern-dev/postern/tunnel/peer"
)

const proofSize = sha256.Size

// Way is how a request reaches the inviter; its value begins what the proof is over. A reply
// passes through the hands of people, and who reads it there must not redeem by its proof.
type Way string

// Ways of a request.
const (
	InBand  Way = "postern ticket v1 in-band proof" // through the one-time tunnel
	ByReply Way = "postern ticket v1 proof"         // in a reply
)

// Prove returns the request with the proof that the joiner holds the private key of
// PublicKey. It goes for this way, this ticket, this inviter and the request as it is alone:
// public keys are no secrets, and whoever has a ticket must not redeem it for someone else's.
func (r Request) Prove(way Way, id ID, inviter peer.PublicKey, joiner peer.PrivateKey) (Request, error) {
	var err error
	r.Proof, err = r.proof(way, id, inviter, joiner, inviter)
	return r, err
}

// proof is HMAC-SHA256 over the request under X25519(private, public), which only the two
// can compute whose keys the joiner's and the inviter's are: each with its own private key
// and the other's public one. It is over the way, the ticket's id, the inviter's public
// key, and the request as a reply's body has it. It fails for a public key of low order.
func (r Request) proof(way Way, id ID, inviter peer.PublicKey, private peer.PrivateKey, public peer.PublicKey) ([]byte, error) {
	shared, err := private.SharedSecret(public)
	if err != nil {
		return nil, fmt.Errorf("prove the joiner's key: %w", err)
	}
	b := append([]byte(way), id[:]...)
	b = append(b, inviter[:]...)
	if b, err = r.append(b); err != nil {
		return nil, fmt.Errorf("prove the joiner's key: %w", err)
	}
	h := hmac.New(sha256.New, shared[:])
	h.Write(b)
	return h.Sum(nil), nil
}

// checkProof reports what is wrong with the proof of a request that is in order otherwise.
func (r Request) checkProof(way Way, id ID, inviter peer.PrivateKey) error {
	if len(r.Proof) == 0 {
		return ErrNoProof
	}
	want, err := r.proof(way, id, inviter.Public(), inviter, r.PublicKey)
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrProof, err)
	}
	if !hmac.Equal(want, r.Proof) {
		return ErrProof
	}
	return nil
}

// append writes the request except for its proof.
func (r Request) append(b []byte) ([]byte, error) {
	b = append(b, r.PublicKey[:]...)
	b = appendText(b, r.Name)
	return appendLists(b, [][]string{r.Wants, r.Grants}, r.Candidates)
}
