package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestWhatLooksLikeASecretIsHidden(t *testing.T) {
	private, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	public := private.Public().String()
	pem := "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIB\n-----END EC PRIVATE KEY-----\n"
	inJSON, err := json.Marshal(map[string]string{"file": pem})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ text, secret, rest string }{
		"private key":   {"key=" + private.Base64() + " end", private.Base64(), " end"},
		"PEM":           {"before " + pem + "after", "MHcCAQEEIB", "after"},
		"PEM in JSON":   {string(inJSON), "MHcCAQEEIB", `"file"`},
		"half a PEM":    {"x -----BEGIN PRIVATE KEY-----\nMHcCAQEEIB", "MHcCAQEEIB", "x "},
		"ticket":        {"join postern1q5zab3k2mn4 now", "q5zab3k2mn4", "join postern1"},
		"QR code":       {"join POSTERN1CAGQ2MN4ZZ now", "CAGQ2MN4ZZ", " now"},
		"token":         {"got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2ln ok", "eyJpc3MiOiJrdWJlIn0", " ok"},
		"bearer":        {"Authorization: Bearer abcdef0123456789", "abcdef0123456789", "Authorization"},
		"password":      {`{"password": "hunter2", "user": "u"}`, "hunter2", `"user": "u"`},
		"quoted":        {`password="correct horse" next`, "horse", " next"},
		"kubeconfig":    {"    client-key-data: LS0tLS1CRUdJTiBFQyBQUk== end", "LS0tLS1CRUdJTiBF", " end"},
		"PEM in base64": {`{"x":"LS0tLS1CRUdJTiBFQyBQUklWQVRF"}`, "BFQyBQUklWQVRF", `{"x"`},
		"URL":           {"dial https://user:hunter2@host/path", "hunter2", "@host/path"},
		"token in URL":  {"dial https://s3cret@host/path", "s3cret", "@host/path"},
		"odd password":  {`parse "http://user:hun/t@r2@host:3128": invalid port`, "r2", "@host:3128"},
		"@ in password": {`parse "http://user:h@n/t@r2@host:3128": invalid port`, "r2", "@host:3128"},
		"bootstrap":     {"kubeadm token abcdef.0123456789abcdef ok", "0123456789abcdef", " ok"},
		"hex":           {"private_key=" + private.Hex() + " end", private.Hex(), " end"},
		"short bearer":  {"Bearer abc end", "abc", " end"},
		"password arg":  {"turn password=hunter2 next", "hunter2", " next"},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(redact([]byte(tc.text), map[string]bool{public: true}))
			if strings.Contains(got, tc.secret) || !strings.Contains(got, hidden) {
				t.Errorf("got %q", got)
			}
			if !strings.Contains(got, tc.rest) {
				t.Errorf("got %q, which lacks %q", got, tc.rest)
			}
		})
	}
	plain := "peer cloud has key " + public + " and passwordFile: /etc/postern/turn, at https://host:6443/x, mail postern@postern.dev"
	if got := string(redact([]byte(plain), map[string]bool{public: true})); got != plain {
		t.Errorf("got %q, want it as it was", got)
	}
}
