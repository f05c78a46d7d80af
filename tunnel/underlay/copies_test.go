package underlay

import (
	"bytes"
	"testing"
	"time"
)

func TestDeviceIsGivenNoCopyOfWhatItWorksOn(t *testing.T) {
	t0 := time.Unix(1000, 0)
	var book copies
	book.init()
	changed := func(m []byte, at int) []byte {
		m = bytes.Clone(m)
		m[at]++
		return m
	}
	for name, m := range map[string][]byte{"initiation": initiation(1), "response": responseOf(1, 2)} {
		if book.again(m, t0) {
			t.Errorf("%s: the first is taken for a copy", name)
		}
		// Neither the sender's index nor the MACs are a secret of the sender's.
		for _, at := range []int{4, len(m) - 2*macSize, len(m) - 1} {
			if !book.again(changed(m, at), t0.Add(copyLifetime-1)) {
				t.Errorf("%s: not taken for a copy with byte %d changed", name, at)
			}
		}
		for _, at := range []int{8, len(m) - 2*macSize - 1} {
			if book.again(changed(m, at), t0) {
				t.Errorf("%s: taken for a copy with byte %d changed", name, at)
			}
		}
		if book.again(m, t0.Add(copyLifetime)) {
			t.Errorf("%s: taken for a copy after %v", name, copyLifetime)
		}
	}
}

// A flood of other messages pushes out what was noted before, and costs no memory.
func TestCopiesAreBounded(t *testing.T) {
	t0 := time.Unix(1000, 0)
	var book copies
	book.init()
	book.again(initiation(0), t0)
	for i := range uint32(copiesKept - 1) {
		book.again(initiation(1+i), t0)
	}
	if !book.again(initiation(0), t0) {
		t.Errorf("%d others pushed it out", copiesKept-1)
	}
	book.again(initiation(copiesKept), t0)
	if book.again(initiation(0), t0) {
		t.Errorf("after %d others it is still known", copiesKept)
	}
}

// What is held back is held once, and given to the device once, also if a copy of it came
// over a path on which nothing is held.
func TestCopiesOfWhatIsHeldBack(t *testing.T) {
	b, _, c := selected(t)
	f, held := b.candidates["x"], func(index uint32) heldInitiation {
		m := initiation(index)
		return heldInitiation{relayed: relayed{&m, b.inner.endpoint(localAddr(c))}}
	}
	for i, want := range []struct{ held, copied bool }{{true, false}, {true, true}} {
		if held, copied := b.hold(f, time.Hour, held(100)); held != want.held || copied != want.copied {
			t.Errorf("copy %d: held %v, a copy %v, want %+v", i, held, copied, want)
		}
	}
	write(t, plain(t, loopback4), initiation(100), b.addr())
	b.next(t)
	b.again(t, func() { b.give(b.crossings.take(f, nil).initiations) })
	b.give([]heldInitiation{held(101)})
	if got := b.next(t).data; !bytes.Equal(got, initiation(101)) {
		t.Errorf("got %.20x, want what is no copy", got)
	}
}
