package ticket

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestDeadlines(t *testing.T) {
	d := newDesk(t, noon)
	if at, ok := d.NextDeadline(); ok {
		t.Errorf("an empty book has a deadline: %v", at)
	}
	_, long := d.invite(noon, Invitation{TTL: time.Hour})
	_, short := d.invite(noon, Invitation{TTL: time.Minute})
	if at, ok := d.NextDeadline(); !ok || !at.Equal(noon.Add(time.Minute)) {
		t.Errorf("next deadline: got %v, %v; want %v", at, ok, noon.Add(time.Minute))
	}
	if drop, err := d.Expire(noon.Add(time.Minute - time.Second)); err != nil || drop != nil {
		t.Errorf("a second early: got %v, %v", drop, err)
	}
	at := noon.Add(time.Minute)
	if got := d.OneTimePeers(at); len(got) != 1 || got[0].Ticket != long.ID {
		t.Errorf("one-time peers at the deadline: %v, want that of %s", got, long.ID)
	}
	if drop, err := d.Expire(at); err != nil || !slices.Equal(drop, []peer.PublicKey{short.OneTime.Public()}) {
		t.Errorf("at the deadline: got %v, %v; want the short one's key", drop, err)
	}
	if drop, err := d.Expire(at); err != nil || drop != nil {
		t.Errorf("a second time: got %v, %v", drop, err)
	}
	if n := count(d.log.events(), audit.Expire); n != 1 {
		t.Errorf("%d expiries were recorded, want 1", n)
	}
	if next, ok := d.NextDeadline(); !ok || !next.Equal(noon.Add(time.Hour)) {
		t.Errorf("next deadline: got %v, %v; want %v", next, ok, noon.Add(time.Hour))
	}
}

func TestExpiredTicketsAreRefused(t *testing.T) {
	for name, restart := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, noon)
			_, keys := d.invite(noon, standard())
			late := noon.Add(DefaultTTL)
			if restart {
				d.reopen(late)
			}
			var expired *ExpiredError
			if _, err := d.redeem(late, keys, ask(1, "edge")); !errors.As(err, &expired) || !expired.At.Equal(late) {
				t.Errorf("Redeem: got %v, want %v at %v", err, ErrExpired, late)
			}
			if _, err := d.Accept(late, d.reply(keys, ask(1, "edge"))); !errors.Is(err, ErrExpired) {
				t.Errorf("Accept: got %v, want %v", err, ErrExpired)
			}
		})
	}
}

func TestARedeemedTicketIsFinishedByItsDeadline(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, standard())
	d.mustRedeem(noon, keys, ask(1, "edge"))
	drop, err := d.Expire(noon.Add(DefaultTTL))
	if err != nil || !slices.Equal(drop, []peer.PublicKey{keys.OneTime.Public()}) {
		t.Errorf("Expire: got %v, %v; want the one-time key", drop, err)
	}
	if n := count(d.log.events(), audit.Expire); n != 0 {
		t.Error("a ticket that was used is recorded as expired")
	}
}

func TestAClockThatIsSetBackRevivesNothing(t *testing.T) {
	d := newDesk(t, noon)
	_, gone := d.invite(noon, Invitation{TTL: time.Minute})
	_, open := d.invite(noon, Invitation{TTL: time.Hour})
	later := noon.Add(10 * time.Minute)
	if _, err := d.Expire(later); err != nil {
		t.Fatal(err)
	}
	back := noon.Add(-24 * time.Hour)
	d.reopen(back)
	if _, err := d.redeem(back, gone, ask(1, "edge")); !errors.Is(err, ErrExpired) {
		t.Errorf("the expired one: got %v, want %v", err, ErrExpired)
	}
	// The other had 50 minutes left when the clock was last seen, and still has them.
	at, _ := d.NextDeadline()
	if want := back.Add(50 * time.Minute); !at.Equal(want) {
		t.Errorf("the open one's deadline: got %v, want %v", at, want)
	}
	if _, err := d.redeem(back.Add(51*time.Minute), open, ask(1, "edge")); !errors.Is(err, ErrExpired) {
		t.Errorf("the open one, 51 minutes later: got %v, want %v", err, ErrExpired)
	}
}

func TestSetBack(t *testing.T) {
	const h = time.Hour
	for _, c := range []struct {
		name                  string
		monotonic, wall, want time.Duration
	}{
		{"an hour passed", h, h, 0},
		{"an hour passed while the clock was set back by two", h, -h, 2 * h},
		{"an hour passed while the clock was set on by two", h, 3 * h, 0},
		{"slept for an hour", 0, h, 0},
		{"restarted with a clock an hour behind", -h, -h, h},
		{"NTP slews", h, h - 100*time.Millisecond, 0},
	} {
		if got := setBack(c.monotonic, c.wall); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAClockThatWasAheadLocksNobodyOut(t *testing.T) {
	ahead := noon.Add(20 * 365 * 24 * time.Hour)
	d := newDesk(t, ahead)
	if _, _, err := d.Invite(ahead, standard()); err != nil {
		t.Fatal(err)
	}
	d.reopen(noon)
	_, keys := d.invite(noon, standard())
	d.mustRedeem(noon.Add(time.Minute), keys, ask(1, "edge"))
}

func TestTimeSeenIsStoredWhileTicketsAreOpen(t *testing.T) {
	d := newDesk(t, noon)
	d.invite(noon, standard())
	at := noon
	for range 10 {
		at = at.Add(saveSeen)
		if _, err := d.Expire(at); err != nil {
			t.Fatal(err)
		}
		if seen := d.store.Tickets().Seen; !seen.Equal(at) {
			t.Fatalf("time stored: got %v, want %v", seen, at)
		}
	}
	saves := d.store.saves
	if _, err := d.Expire(at.Add(time.Second)); err != nil || d.store.saves != saves {
		t.Errorf("the book was written a second later (%v)", err)
	}
}

func TestEndedTicketsAreForgotten(t *testing.T) {
	d := newDesk(t, noon)
	_, keys := d.invite(noon, Invitation{TTL: time.Minute})
	if _, err := d.Expire(noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Expire(noon.Add(time.Hour + keepEnded + time.Second)); err != nil {
		t.Fatal(err)
	}
	if n := len(d.store.Tickets().List); n != 0 {
		t.Errorf("%d tickets are remembered, want none", n)
	}
	if _, err := d.redeem(noon.Add(time.Hour), keys, ask(1, "edge")); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want %v", err, ErrUnknown)
	}
}

func TestNotTooManyEndedTicketsAreRemembered(t *testing.T) {
	e := &edit{now: noon}
	for i := range MaxRemembered + 10 {
		e.List = append(e.List, Record{ID: ID{byte(i >> 8), byte(i)}, State: Expired, EndedAt: noon}, Record{State: Open})
	}
	e.forget()
	ended := slices.DeleteFunc(slices.Clone(e.List), Record.live)
	if n := len(ended); n != MaxRemembered {
		t.Errorf("%d ended tickets are remembered, want %d", n, MaxRemembered)
	}
	if first, want := ended[0].ID, (ID{0, 10}); first != want {
		t.Errorf("the oldest that is remembered is %v, want %v", first, want)
	}
	if n := len(e.List) - len(ended); n != MaxRemembered+10 {
		t.Errorf("%d open tickets are left, want all %d", n, MaxRemembered+10)
	}
}

// TestBookAgainstOracle applies random events to the book and compares it with a simple model of
// one ticket.
func TestBookAgainstOracle(t *testing.T) {
	const rounds = 100
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newDesk(t, noon)
		_, keys := d.invite(noon, Invitation{TTL: time.Minute, For: peer.PublicKey{}})
		now, deadline := noon, noon.Add(time.Minute)
		var winner byte
		failures, ended := 0, ""
		for step := range 30 {
			switch r.IntN(6) {
			case 0:
				now = now.Add(time.Duration(r.IntN(15)) * time.Second)
			case 1:
				d.reopen(now)
			default:
				key := byte(1 + r.IntN(3))
				q := ask(key, "edge")
				bad := r.IntN(3) == 0
				if bad {
					q.Wants = []string{"more"}
				}
				var want error
				switch {
				case ended == "burned":
					want = ErrBurned
				case ended == "expired" || winner == 0 && !now.Before(deadline):
					want, ended = ErrExpired, "expired"
				case winner != 0 && key != winner:
					want = ErrAlreadyUsed
				case winner != 0 && !now.Before(deadline):
					want = ErrJoined
				case winner == 0 && bad:
					want = ErrNotGranted
					if failures++; failures == MaxFailures {
						ended = "burned"
					}
				case winner == 0:
					winner = key
				}
				if _, err := d.redeem(now, keys, q); !errors.Is(err, want) {
					t.Fatalf("seed %d, step %d, key %d at %v: got %v, want %v", seed, step, key, now.Sub(noon), err, want)
				}
			}
			if live := len(d.OneTimePeers(now)) == 1; live != (ended == "" && now.Before(deadline)) {
				t.Fatalf("seed %d, step %d at %v: one-time peer there: %v", seed, step, now.Sub(noon), live)
			}
		}
	}
}
