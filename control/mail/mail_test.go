package mail

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/tunnel/peer"
)

// postman hands messages over as the test says, and notes what it was given.
type postman struct {
	given  []string
	failed []error
	// answer is what the n-th try comes to, from 0; nil is success.
	answer func(n int) error
}

func (p *postman) mail(ctx context.Context, room int) *Sender[string] {
	return New(Options[string]{
		Ctx: ctx, Room: room, Urgent: func(m string) bool { return m == "urgent" },
		Hand: func(_ context.Context, _ peer.PublicKey, m string) error {
			p.given = append(p.given, m)
			if p.answer == nil {
				return nil
			}
			return p.answer(len(p.given) - 1)
		},
		Failed: func(_ peer.PublicKey, err error) { p.failed = append(p.failed, err) },
	})
}

func (p *postman) want(t *testing.T, what string, given ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(p.given, given) {
		t.Errorf("%s: handed over %q, want %q", what, p.given, given)
	}
	p.given = nil
}

func TestMail(t *testing.T) {
	silent := &auth.UnreachableError{Address: "x", Err: errors.New("no answer")}
	refusal := &auth.Error{Status: 404, Code: "notFound"}
	to := peer.PublicKey{1}
	cases := []struct {
		name string
		play func(t *testing.T, p *postman, m *Sender[string])
	}{
		{"in order, the oldest of too many dropped", func(t *testing.T, p *postman, m *Sender[string]) {
			hold := make(chan struct{})
			p.answer = func(int) error { <-hold; return nil }
			m.Post(to, "a")
			synctest.Wait() // a is under way
			for _, s := range []string{"b", "c", "d"} {
				m.Post(to, s)
			}
			close(hold)
			p.want(t, "four posted, room for two", "a", "c", "d")
		}},
		{"again while nobody answers", func(t *testing.T, p *postman, m *Sender[string]) {
			p.answer = func(n int) error {
				if n < handTries-1 {
					return silent
				}
				return nil
			}
			m.Post(to, "a")
			p.want(t, "answered at last", "a", "a", "a")
			p.answer = func(int) error { return silent }
			m.Post(to, "b")
			p.want(t, "never answered", "b", "b", "b")
			m.Post(to, "urgent")
			p.want(t, "what is urgent", "urgent")
			if len(p.failed) != 2 {
				t.Errorf("told of %v, want two failures", p.failed)
			}
		}},
		{"not to those that refuse, until they speak", func(t *testing.T, p *postman, m *Sender[string]) {
			p.answer = func(int) error { return refusal }
			m.Post(to, "a")
			p.want(t, "refused", "a")
			m.Post(to, "b")
			m.Post(to, "c")
			p.want(t, "left alone")
			p.answer = nil
			m.Spoke(to)
			p.want(t, "when it spoke", "c")
		}},
		{"nor for ever", func(t *testing.T, p *postman, m *Sender[string]) {
			p.answer = func(int) error { return refusal }
			m.Post(to, "a")
			p.want(t, "refused", "a")
			time.Sleep(leaveAlone) // virtual
			p.answer = nil
			m.Post(to, "b")
			p.want(t, "after a while", "a", "b")
		}},
		{"not to a peer that is gone", func(t *testing.T, p *postman, m *Sender[string]) {
			hold := make(chan struct{})
			p.answer = func(int) error { <-hold; return nil }
			m.Post(to, "a")
			m.Post(to, "b")
			synctest.Wait()
			m.Forget(to)
			close(hold)
			p.want(t, "forgotten", "a")
			m.Spoke(to)
			p.want(t, "forgotten", []string{}...)
		}},
		{"nothing once closed", func(t *testing.T, p *postman, m *Sender[string]) {
			m.Close()
			m.Post(to, "a")
			p.want(t, "closed", []string{}...)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				p := &postman{}
				m := p.mail(ctx, 2)
				c.play(t, p, m)
				cancel()
				m.Close()
			})
		})
	}
}
