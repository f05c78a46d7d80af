package v1alpha1

// SecretRefs are the references to Secrets of a Peer; those that are not given are nil.
func (s *PeerSpec) SecretRefs() []*SecretKey {
	refs := []*SecretKey{s.PresharedKeySecretRef}
	if b := s.OutOfBand; b != nil {
		refs = append(refs, b.CASecretRef, b.TokenSecretRef)
	}
	return refs
}
