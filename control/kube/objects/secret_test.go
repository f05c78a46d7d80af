package objects

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOnlyASecretThatIsMeantForItMayBeNamed(t *testing.T) {
	for name, c := range map[string]struct {
		kind   corev1.SecretType
		labels map[string]string
		want   string // in the error; "" means none
	}{
		"meant for it":      {corev1.SecretTypeOpaque, map[string]string{LabelUse: "psk", "team": "net"}, ""},
		"with any value":    {corev1.SecretTypeOpaque, map[string]string{LabelUse: ""}, ""},
		"said by nobody":    {corev1.SecretTypeOpaque, nil, "kubectl label secret keys -n postern postern.dev/use=token"},
		"a key of a server": {corev1.SecretTypeTLS, map[string]string{LabelUse: "ca"}, "kubernetes.io/tls"},
		"an account's":      {corev1.SecretTypeServiceAccountToken, map[string]string{LabelUse: "token"}, "service-account-token"},
		"the state":         {corev1.SecretTypeOpaque, map[string]string{LabelUse: "token", labelManagedBy: manager}, "the gateway's own"},
		"a Ticket's":        {corev1.SecretTypeOpaque, map[string]string{LabelUse: "token", "postern.dev/ticket": "edge"}, "postern.dev/ticket"},
		"a kubeconfig":      {corev1.SecretTypeOpaque, map[string]string{LabelUse: "token", "postern.dev/peer": "edge"}, "postern.dev/peer"},
	} {
		x := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys", Namespace: "postern", Labels: c.labels}, Type: c.kind,
			Data: map[string][]byte{"private.key": []byte("hidden")}}
		err := MayName(x, "token")
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		case err != nil && strings.Contains(err.Error(), "private.key"):
			t.Errorf("%s: the error shows what is in the Secret: %v", name, err)
		}
	}
}
