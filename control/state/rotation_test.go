package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestTheNextKeyTakesThePlaceOfTheKey(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.PrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.UseNextKey(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a next key: %v", err)
	}
	next, err := s.NextKey()
	if err != nil || next.Equal(old) {
		t.Fatalf("the next key is the old one, or %v", err)
	}
	if again, err := s.NextKey(); err != nil || !again.Equal(next) {
		t.Errorf("the second call returns another next key, or error %v", err)
	}
	if announced, _ := s.OwnKeys(); announced != next.Public() {
		t.Errorf("the key to come is %s, want %s", announced, next.Public())
	}
	if err := s.UseNextKey(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if now, err := s.PrivateKey(); err != nil || !now.Equal(next) {
		t.Errorf("after a restart the key is not the next one, or %v", err)
	}
	if announced, retired := s.OwnKeys(); !announced.IsZero() || len(retired) != 1 || retired[0] != old.Public() {
		t.Errorf("the keys are %s to come and %v gone, want none and %s", announced, retired, old.Public())
	}
	if _, err := os.Stat(filepath.Join(dir, nextKeyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the next key is still there: %v", err)
	}
}

func TestAPeerSucceedsItselfByTheKeyThatItAnnounced(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := func(b byte) peer.PublicKey { return peer.PublicKey{b} }
	cloud := Peer{Name: "cloud", PublicKey: key(1), Allow: []string{"auth"}, Origin: OriginJoined}
	other := Peer{Name: "other", PublicKey: key(2), Origin: OriginJoined}
	put := func(p Peer) error { return s.Update(func(all *Peers) error { return all.Put(p) }) }
	if err := errors.Join(put(cloud), put(other)); err != nil {
		t.Fatal(err)
	}
	cloud.NextKey, cloud.NextPresharedKey = key(3), peer.PresharedKeyFromBytes([32]byte{9})
	if err := put(cloud); err != nil {
		t.Fatal(err)
	}
	other.NextKey = key(3)
	if err := put(other); !errors.Is(err, ErrDuplicate) {
		t.Errorf("a key that another announced: %v", err)
	}
	other.NextKey = key(1)
	if err := put(other); !errors.Is(err, ErrDuplicate) {
		t.Errorf("a key that another has: %v", err)
	}
	other.NextKey = key(4)
	if err := put(other); err != nil {
		t.Fatal(err)
	}
	if err := put(Peer{Name: "owner", PublicKey: key(4), Origin: OriginAdded}); !errors.Is(err, ErrDuplicate) {
		t.Errorf("a peer with a key that another announced: %v", err)
	}
	other.NextKey = peer.PublicKey{}
	if err := put(other); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Update(func(all *Peers) error {
		if all.Succeed("other") || !all.Succeed("cloud") {
			t.Error("other has a successor, or cloud has none")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got, _ := s.Peers().Get("cloud")
	if got.PublicKey != key(3) || !got.PresharedKey.Equal(peer.PresharedKeyFromBytes([32]byte{9})) || !got.NextKey.IsZero() || !got.NextPresharedKey.IsZero() {
		t.Errorf("got %+v", got)
	}
	if len(got.FormerKeys) != 1 || got.FormerKeys[0] != key(1) {
		t.Errorf("the former keys are %v, want %s", got.FormerKeys, key(1))
	}
	if _, ok := s.Peers().ByKey(key(1)); ok {
		t.Error("the old key counts still")
	}
}

// However often a peer takes another key, its removal concerns the one with which it came, which may be
// in a list of keys to be added automatically.
func TestTheFirstKeyOfAPeerIsNotForgotten(t *testing.T) {
	key := func(i int) peer.PublicKey { return peer.PublicKey{byte(i), byte(i >> 8), 1} }
	var all Peers
	if err := all.Put(Peer{Name: "edge", PublicKey: key(0)}); err != nil {
		t.Fatal(err)
	}
	const rotations = 3 * maxFormer
	for i := range rotations {
		p, _ := all.Get("edge")
		p.NextKey = key(i + 1)
		if err := all.Put(p); err != nil || !all.Succeed("edge") {
			t.Fatalf("rotation %d: %v", i, err)
		}
	}
	p, _ := all.Get("edge")
	if n := len(p.FormerKeys); n != maxFormer {
		t.Errorf("%d former keys are stored", n)
	}
	if p.FormerKeys[0] != key(0) || p.FormerKeys[maxFormer-1] != key(rotations-1) {
		t.Errorf("the first and the last former key are %s and %s", p.FormerKeys[0], p.FormerKeys[maxFormer-1])
	}
}
