package v1alpha1

import (
	"slices"
	"testing"
)

func TestSecretRefsAreThoseThatAreGiven(t *testing.T) {
	psk, ca, token := &SecretKey{Name: "a"}, &SecretKey{Name: "b"}, &SecretKey{Name: "c"}
	for _, c := range []struct {
		spec PeerSpec
		want []*SecretKey
	}{
		{PeerSpec{}, []*SecretKey{nil}},
		{PeerSpec{PresharedKeySecretRef: psk}, []*SecretKey{psk}},
		{PeerSpec{PresharedKeySecretRef: psk, OutOfBand: &PeerOutOfBand{CASecretRef: ca, TokenSecretRef: token}}, []*SecretKey{psk, ca, token}},
	} {
		if got := c.spec.SecretRefs(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.spec, got, c.want)
		}
	}
}
