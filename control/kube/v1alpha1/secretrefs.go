package v1alpha1

// SecretRefs returns a Peer's references to Secrets; those that are not set are nil.
func (s *PeerSpec) SecretRefs() []*SecretKey {
	refs := []*SecretKey{s.PresharedKeySecretRef}
	if b := s.OutOfBand; b != nil {
		refs = append(refs, b.CASecretRef, b.TokenSecretRef)
	}
	return refs
}
