package main

import (
	"os"
	"testing"

	"github.com/postern-dev/postern/cmd/postern/deploy/vex/linked"
)

// pion/stun's client file imports pion/dtls, which has GO-2026-4479 (CVE-2026-26014) in every
// release of version 2, and so does that of the version that pion/turn uses. Of the first only
// the message codec is used here, of the second only what TURN takes, so the linker must have
// dropped dtls's connection code. The program with its tests has all that the program alone
// has, and is there already.
func TestNoDTLSConnectionCodeIsLinked(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := linked.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if p.Function("github.com/pion/stun/v2.(*Message)") == "" {
		t.Fatal("the functions of pion/stun are not there: the test would not see dtls either")
	}
	for _, code := range []string{".(*Conn)", "/pkg/crypto/ciphersuite."} {
		for _, module := range []string{"github.com/pion/dtls/v2", "github.com/pion/dtls/v3"} {
			if f := p.Function(module + code); f != "" {
				t.Errorf("dtls connection code is linked: %s", f)
			}
		}
	}
}
