package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeeperRenewsAfterTwoThirds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 24 * time.Hour
		o := newOffice(t, life)
		var mu sync.Mutex
		var told []time.Time
		start := time.Now()
		k, stop := keep(t, o.Request, &cabinet{}, func(o *KeeperOptions) {
			o.OnChange = func(id Identity) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, id.NotAfter)
			}
		})
		time.Sleep(10 * life) // virtual
		stop()
		at := o.times(start)
		if len(at) < 14 || len(at) > 17 || at[0] > time.Second {
			t.Fatalf("asked %d times in ten lives, first after %v: %v", len(at), at[0], at)
		}
		jittered := false
		for i := 1; i < len(at); i++ {
			gap := at[i] - at[i-1]
			if gap < life*2/3-life/20-time.Minute || gap > life*2/3+time.Minute {
				t.Errorf("renewal %d after %v, want two thirds of %v less up to a twentieth", i, gap, life)
			}
			jittered = jittered || gap != at[1]-at[0]
		}
		if !jittered {
			t.Error("all renewals are equally far apart")
		}
		if len(told) != len(at) || !told[len(told)-1].Equal(k.NotAfter()) {
			t.Errorf("got %d identities, want %d", len(told), len(at))
		}
		for i := 1; i < len(o.csrs); i++ {
			if bytes.Equal(o.csrs[i], o.csrs[i-1]) {
				t.Error("a key was used for two certificates")
			}
		}
	})
}

func TestKeeperStartsWithWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 24 * time.Hour
		o, store := newOffice(t, life), &cabinet{}
		_, stop := keep(t, o.Request, store, nil)
		synctest.Wait()
		stop()
		k, stop := keep(t, o.Request, store, nil)
		if id, ok := k.Current(); !ok || id.User != "postern:peer:edge" {
			t.Errorf("at once: got %v, %v; want the stored identity", id, ok)
		}
		time.Sleep(life / 2)
		if n := len(o.times(time.Now())); n != 1 {
			t.Errorf("asked %d times in half a life, want once", n)
		}
		time.Sleep(life / 4)
		if n := len(o.times(time.Now())); n != 2 {
			t.Errorf("got %d requests in three quarters of a lifetime, want 2", n)
		}
		stop()
	})
}

func TestKeeperRenewsAtOnceWhatExpiredWhileItWasOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, store := newOffice(t, time.Hour), &cabinet{}
		_, stop := keep(t, o.Request, store, nil)
		synctest.Wait()
		stop()
		time.Sleep(2 * time.Hour)
		k, stop := keep(t, o.Request, store, nil)
		synctest.Wait()
		if !k.NotAfter().After(time.Now()) {
			t.Errorf("valid until %v at %v", k.NotAfter(), time.Now())
		}
		stop()
	})
}

func TestKeeperIgnoresAStoredIdentityThatIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, time.Hour)
		k, stop := keep(t, o.Request, &cabinet{cert: []byte("x"), key: []byte("y")}, nil)
		synctest.Wait()
		if _, ok := k.Current(); !ok {
			t.Error("no new identity")
		}
		stop()
	})
}

func TestALostAnswerIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, time.Hour)
		o.lose = func(n int) bool { return n <= 2 }
		k, stop := keep(t, o.Request, &cabinet{}, nil)
		time.Sleep(30 * time.Second)
		if _, ok := k.Current(); !ok || len(o.csrs) != 3 {
			t.Fatalf("got %d requests, identity %v; want 3 and one", len(o.csrs), ok)
		}
		if !bytes.Equal(o.csrs[0], o.csrs[1]) || !bytes.Equal(o.csrs[1], o.csrs[2]) {
			t.Error("the retries ask for other certificates: the issuer cannot tell that they are retries")
		}
		if _, err := k.LastError(); err != nil {
			t.Errorf("after the success there is still an error: %v", err)
		}
		stop()
	})
}

func TestKeeperBacksOff(t *testing.T) {
	unreachable := &UnreachableError{Address: "[fd00::1]:80", Err: errors.New("timeout")}
	for _, c := range []struct {
		name     string
		err      error
		min, max int // requests in ten minutes
		gap      time.Duration
	}{
		{"unreachable", unreachable, 8, 20, 0},
		{"denied", newError(codeNotGranted, "no"), 5, 20, deniedRetry},
		{"no issuer", newError(codeNoIssuer, "no"), 5, 20, deniedRetry},
		{"rate limited", &Error{Status: 429, Code: codeRateLimited, RetryAfter: 3 * time.Minute}, 3, 4, 3 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t, time.Hour)
				o.fail = func(int) error { return c.err }
				start := time.Now()
				var out records
				k, stop := keep(t, o.Request, &cabinet{}, func(o *KeeperOptions) {
					o.Logger = slog.New(slog.NewTextHandler(&out, nil))
				})
				time.Sleep(10 * time.Minute)
				at := o.times(start)
				if len(at) < c.min || len(at) > c.max {
					t.Errorf("asked %d times in ten minutes, want %d to %d: %v", len(at), c.min, c.max, at)
				}
				for i := 1; i < len(at); i++ {
					if at[i]-at[i-1] < c.gap {
						t.Errorf("got a retry after %v, want at least %v", at[i]-at[i-1], c.gap)
					}
				}
				next, err := k.LastError()
				if !errors.Is(err, c.err) || !next.After(time.Now()) {
					t.Errorf("last error: got %v, next try %v", err, next)
				}
				if n := strings.Count(out.String(), "level=WARN"); n != 1 {
					t.Errorf("%d warnings of the same error, want 1", n)
				}
				stop()
			})
		})
	}
}

func TestWakeDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, time.Hour)
		up := false
		o.fail = func(int) error {
			if up {
				return nil
			}
			return &UnreachableError{Err: errors.New("down")}
		}
		k, stop := keep(t, o.Request, &cabinet{}, nil)
		time.Sleep(time.Hour)
		o.mu.Lock()
		up = true
		o.mu.Unlock()
		k.Wake()
		synctest.Wait()
		if _, ok := k.Current(); !ok {
			t.Error("no identity although the peer came back")
		}
		asked := len(o.csrs)
		k.Wake()
		synctest.Wait()
		if len(o.csrs) != asked {
			t.Error("asked although nothing was due")
		}
		k.Renew()
		synctest.Wait()
		if len(o.csrs) != asked+1 {
			t.Errorf("asked %d times after Renew, want once", len(o.csrs)-asked)
		}
		stop()
	})
}

// An identity that should have been replaced, but was not, is in doubt. One that is merely due
// for renewal is not.
func TestAnIdentityThatCannotBeReplacedIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 24 * time.Hour
		o := newOffice(t, life)
		var mu sync.Mutex
		failure, doubts := error(&UnreachableError{}), 0
		o.fail = func(int) error {
			mu.Lock()
			defer mu.Unlock()
			return failure
		}
		set := func(err error) { mu.Lock(); defer mu.Unlock(); failure = err }
		var k *Keeper
		k, stop := keep(t, o.Request, &cabinet{}, func(o *KeeperOptions) {
			o.OnDoubt = func() {
				mu.Lock()
				defer mu.Unlock()
				doubts++
				k.Wake() // the peer is checked, and answers
			}
		})
		want := func(when string, least, most int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if doubts < least || doubts > most {
				t.Errorf("%s: got %d doubts, want %d to %d", when, doubts, least, most)
			}
			doubts = 0
		}
		time.Sleep(time.Minute)
		want("while there is none", 0, 0)
		set(nil)
		k.Wake()
		want("once it is there", 0, 0)
		set(errors.New("not for you"))
		time.Sleep(life * 3 / 4)
		want("while it is due for renewal", 0, 0)
		k.Renew()
		want("when it was to be replaced", 1, 1)
		time.Sleep(time.Minute)
		want("as long as it is not", 2, 10)
		for range 60 {
			k.Wake()
			time.Sleep(time.Second)
		}
		want("while the peer is looked at all the time", 8, 14)
		set(&UnreachableError{})
		time.Sleep(time.Hour)
		want("while the peer does not answer", 0, 0)
		set(nil)
		k.Wake()
		time.Sleep(life / 2)
		want("once it is replaced", 0, 0)
		stop()
	})
}

func TestClocksThatDisagree(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, skew := range map[string]time.Duration{
		"ours is ten years ahead": -10 * year, "ours is an hour ahead": -time.Hour,
		"ours is an hour behind": time.Hour, "ours is ten years behind": 10 * year,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const life = 24 * time.Hour
				o := newOffice(t, life)
				o.skew = skew
				start := time.Now()
				k, stop := keep(t, o.Request, &cabinet{}, nil)
				time.Sleep(10 * life)
				stop()
				at := o.times(start)
				if len(at) < 14 || len(at) > 41 {
					t.Errorf("asked %d times in ten lives, want at least 14 and no flood: %v", len(at), at)
				}
				// By the issuer's clock the identity is still valid.
				if left := k.NotAfter().Sub(time.Now().Add(skew)); left <= 0 {
					t.Errorf("the identity expired %v ago", -left)
				}
			})
		})
	}
}

// The API server rejects such a certificate for hours, although the issuer's clock may be
// corrected within minutes. A restart with the stored certificate does not help.
func TestACertificateOfAClockThatWasAheadIsReplaced(t *testing.T) {
	for name, restart := range map[string]bool{"in one run": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, store := newOffice(t, 24*time.Hour), &cabinet{}
				o.skew = 3 * time.Hour
				k, stop := keep(t, o.Request, store, nil)
				time.Sleep(10 * time.Minute) // virtual
				if restart {
					stop()
					k, stop = keep(t, o.Request, store, nil)
				}
				o.mu.Lock()
				o.skew = 0
				o.mu.Unlock()
				time.Sleep(10 * time.Minute)
				if id, ok := k.Current(); !ok || id.NotBefore.After(time.Now()) {
					t.Errorf("the certificate is valid from %v on, at %v", id.NotBefore, time.Now())
				}
				if n := len(o.times(time.Now())); n > 6 {
					t.Errorf("asked %d times in 20 minutes", n)
				}
				stop()
			})
		})
	}
}

func TestAnIdentityThatCannotBeStoredIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, time.Hour)
		var out records
		k, stop := keep(t, o.Request, &cabinet{err: errors.New("no space left on device")}, func(o *KeeperOptions) {
			o.Logger = slog.New(slog.NewTextHandler(&out, nil))
		})
		synctest.Wait()
		if _, ok := k.Current(); !ok || !strings.Contains(out.String(), "no space left") {
			t.Errorf("identity: %v, log: %s", ok, out.String())
		}
		if strings.Contains(out.String(), "PRIVATE") {
			t.Error("the key was logged")
		}
		stop()
	})
}

func TestKeeperRefusesWhatIsNotItsOwn(t *testing.T) {
	other := func(t *testing.T, usage x509.ExtKeyUsage, own bool) func(context.Context, []byte) ([]byte, error) {
		ca := loadCA(t, nil)
		return func(_ context.Context, csrPEM []byte) ([]byte, error) {
			r, err := parseCSR(csrPEM)
			if err != nil {
				return nil, err
			}
			key := r.PublicKey
			if !own {
				key = newKey(t).Public()
			}
			template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage}}
			der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key, ca.key)
			return pemOf(t, "CERTIFICATE", der, err), nil
		}
	}
	for name, request := range map[string]func(*testing.T) func(context.Context, []byte) ([]byte, error){
		"nothing": func(*testing.T) func(context.Context, []byte) ([]byte, error) {
			return func(context.Context, []byte) ([]byte, error) { return nil, nil }
		},
		"a certificate for another key": func(t *testing.T) func(context.Context, []byte) ([]byte, error) {
			return other(t, x509.ExtKeyUsageClientAuth, false)
		},
		"a certificate for servers": func(t *testing.T) func(context.Context, []byte) ([]byte, error) {
			return other(t, x509.ExtKeyUsageServerAuth, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, stop := keep(t, request(t), &cabinet{}, nil)
				synctest.Wait()
				if _, err := k.LastError(); !errors.Is(err, ErrAnswer) {
					t.Errorf("got %v, want %v", err, ErrAnswer)
				}
				if id, ok := k.Current(); ok {
					t.Errorf("took %v", id)
				}
				stop()
			})
		})
	}
}

func TestKeeperEndsInTheMiddleOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out records
		_, stop := keep(t, func(ctx context.Context, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, &cabinet{}, func(o *KeeperOptions) { o.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		synctest.Wait()
		stop()
		if out.String() != "" {
			t.Errorf("ending is no failure: %s", out.String())
		}
	})
}

// TestRenewalInBand runs keeper, client, server and CA together for a week.
func TestRenewalInBand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := loadCA(t, func(o *LocalCAOptions) {
			c := authority()
			c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(365*24*time.Hour)
			o.CertFile, o.KeyFile = caFiles(t, c)
			o.Now = time.Now
		})
		s := serve(t, func(o *ServerOptions) { o.Issuer = func() Issuer { return ca } })
		k, stop := keep(t, s.client(edgeKey).Identity, &cabinet{}, nil)
		roots := x509.NewCertPool()
		roots.AddCert(ca.cert)
		for hour := range 7 * 24 {
			time.Sleep(time.Hour)
			id, ok := k.Current()
			if !ok {
				t.Fatalf("hour %d: no identity", hour)
			}
			if _, err := id.TLS.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
				t.Fatalf("hour %d: %v", hour, err)
			}
		}
		// A removed peer gets no more identities, and learns why.
		s.dir.remove(edgeKey)
		last := k.NotAfter()
		time.Sleep(24 * time.Hour)
		if !k.NotAfter().Equal(last) {
			t.Error("a removed peer got another identity")
		}
		if _, err := k.LastError(); !errors.Is(err, ErrDenied) {
			t.Errorf("got %v, want %v", err, ErrDenied)
		}
		stop()
		s.stop()
	})
}

// The issuer determines the lifetime of an identity, and each renewal is a write.
func TestIdentitiesThatEndAtOnceAreNotRenewedAllTheTime(t *testing.T) {
	for name, c := range map[string]struct{ life, skew time.Duration }{
		"of a second":        {time.Second, 0},
		"of an hour ago":     {time.Second, -time.Hour},
		"of centuries ahead": {200 * 365 * 24 * time.Hour, 0},
		"of centuries":       {290 * 365 * 24 * time.Hour, -time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newOffice(t, 0)
			o.life, o.skew = c.life, c.skew
			start := time.Now()
			_, stop := keep(t, o.Request, &cabinet{}, nil)
			time.Sleep(time.Minute) // virtual
			stop()
			if n := len(o.times(start)); n > 7 || n == 0 {
				t.Errorf("%s: asked %d times in a minute", name, n)
			}
		})
	}
}
