package ticket

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/postern-dev/postern/tunnel/peer"
)

const proofSize = sha256.Size

// Way is how a request reaches the inviter; its value is the start of what the proof covers. People
// pass replies on, and someone who reads one must not redeem with its proof.
type Way string

// Ways of a request.
const (
	InBand  Way = "postern ticket v1 in-band proof" // through the one-time tunnel
	ByReply Way = "postern ticket v1 proof"         // in a reply
)

// Prove returns the request with the proof that the joiner holds the private key of PublicKey. The
// proof is only valid for this way, ticket, inviter and unchanged request: public keys are not
// secret, and the holder of a ticket must not redeem it for another's key.
func (r Request) Prove(way Way, id ID, inviter peer.PublicKey, joiner peer.PrivateKey) (Request, error) {
	var err error
	r.Proof, err = r.proof(way, id, inviter, joiner, inviter)
	return r, err
}

// proof is an HMAC-SHA256 of the request, keyed with X25519(private, public), which only the joiner
// and the inviter can compute: each with its own private key and the other's public one. It covers
// the way, the ticket's id, the inviter's public key, and the request as encoded in a reply's body.
// It fails for a public key of low order.
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

// checkProof returns what is wrong with the proof of an otherwise valid request.
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

// append appends the request without its proof.
func (r Request) append(b []byte) ([]byte, error) {
	b = append(b, r.PublicKey[:]...)
	b = appendText(b, r.Name)
	return appendLists(b, [][]string{r.Wants, r.Grants}, r.Candidates)
}
