package underlay

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// calls counts a bind's sends by the number of datagrams in each call.
func calls(b *Bind, refuse func(size, datagrams int) unix.Errno) (many, single *int) {
	many, single = new(int), new(int)
	leanOf(b).sendmsg = func(fd uintptr, m *unix.Msghdr) unix.Errno {
		if m.Iovlen > 1 {
			*many++
		} else {
			*single++
		}
		if errno := refuse(int(m.Iov.Len), int(m.Iovlen)); errno != 0 {
			return errno
		}
		return sendmsg(fd, m)
	}
	return many, single
}

func TestRefusedSegmentSizeIsRememberedPerEndpoint(t *testing.T) {
	for name, errno := range map[string]unix.Errno{"EMSGSIZE": unix.EMSGSIZE, "EINVAL, before Linux 6.14": unix.EINVAL} {
		t.Run(name, func(t *testing.T) {
			bind := New(Options{})
			many, single := calls(bind, func(size, n int) unix.Errno {
				if n > 1 && size > 1422 {
					return errno
				}
				return 0
			})
			b, near, far := start(t, bind), plain(t, loopback4), plain(t, loopback4)
			toNear, toFar := b.inner.endpoint(localAddr(near)), b.inner.endpoint(localAddr(far))
			long := [][]byte{data(1, 1452), data(2, 1452), data(3, 1452)}
			short := [][]byte{data(1, 1400), data(2, 1400), data(3, 1400)}
			for i, step := range []struct {
				to           string
				bufs         [][]byte
				many, single int
			}{
				{"near", long, 1, 3}, // refused, then one by one
				{"near", long, 0, 3},
				{"near", short, 1, 0},
				{"far", long, 1, 3}, // another endpoint may use another link
				{"near", long, 0, 3},
				{"routes change", long, 1, 3},
				{"near", long, 0, 3},
			} {
				*many, *single = 0, 0
				to := toNear
				switch step.to {
				case "far":
					to = toFar
				case "routes change":
					bind.RouteChanged()
				}
				if err := b.Send(step.bufs, to); err != nil {
					t.Fatal(err)
				}
				if *many != step.many || *single != step.single {
					t.Errorf("step %d: got %d calls with segments and %d without, want %d and %d", i, *many, *single, step.many, step.single)
				}
			}
			if leanOf(bind).v4.Load().noSegments.Load() {
				t.Error("segments are off for everybody")
			}
		})
	}
}

func TestSmallSegmentsThatAreRefusedTurnThemOff(t *testing.T) {
	bind := New(Options{})
	many, _ := calls(bind, func(_, n int) unix.Errno {
		if n > 1 {
			return unix.EINVAL
		}
		return 0
	})
	b, c := start(t, bind), plain(t, loopback4)
	to := b.inner.endpoint(localAddr(c))
	for range 3 {
		if err := b.Send([][]byte{data(1, smallSegment), data(2, smallSegment)}, to); err != nil {
			t.Fatal(err)
		}
	}
	if *many != 1 {
		t.Errorf("they were tried %d times, want 1", *many)
	}
}

func TestEINVALThatHitsSinglesTooSaysNothingOfSegments(t *testing.T) {
	bind := New(Options{})
	broken := true
	many, _ := calls(bind, func(int, int) unix.Errno {
		if broken {
			return unix.EINVAL
		}
		return 0
	})
	b, c := start(t, bind), plain(t, loopback4)
	to := b.inner.endpoint(localAddr(c))
	bufs := [][]byte{data(1, 200), data(2, 200)}
	if err := b.Send(bufs, to); err == nil {
		t.Fatal("got no error, want EINVAL")
	}
	broken, *many = false, 0
	if err := b.Send(bufs, to); err != nil || *many != 1 {
		t.Errorf("afterwards: got %d calls with segments, %v, want 1", *many, err)
	}
}

func TestLimitIsForgottenAfterMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ep := newLean(Options{}), newLeanEndpoint(beyond, loopback4)
		b.remember(ep, 1452)
		b.remember(ep, 1460) // found by another goroutine meanwhile
		time.Sleep(limitLifetime - time.Nanosecond)
		if !ep.tooLong(1452, b.routes.Load()) || ep.tooLong(1451, b.routes.Load()) {
			t.Error("want segments from 1452 bytes on to be too long")
		}
		time.Sleep(time.Nanosecond)
		if ep.tooLong(1452, b.routes.Load()) {
			t.Error("it is never tried again")
		}
	})
}
