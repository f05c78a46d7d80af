//go:build linux && e2e

package kube

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/tunnel/peer"
)

// TestTokens uses a real kube-apiserver, shared by all subtests; each has its own namespace.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]func(*testing.T, *world){
		"live as long as the peer":           testLife,
		"are renewed without a break":        testRenewal,
		"of an earlier peer end":             testStale,
		"touch nothing of others":            testForeign,
		"end for peers removed while off":    testReconcile,
		"end when the API server is back":    testOutage,
		"need rights that errors give":       testDenied,
		"need a namespace that errors name":  testNoNamespace,
		"stop at a quota":                    testQuota,
		"need what the shipped role gives":   testRole,
		"end with their account, as is seen": testIncarnation,
		"do not go by what a peer is called": testSelfNamed,
		"do not end a watch that is open":    testOpenWatch,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

func (s *site) issueTo(t *testing.T, to auth.Subject) auth.Issuance {
	t.Helper()
	out, err := s.Issue(within(t, patience), to, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func testLife(t *testing.T, w *world) {
	ns := w.namespace(t, "life")
	w.kubectl(t, "", "create", "clusterrole", "life", "--verb=get,list", "--resource=namespaces")
	w.kubectl(t, "", "create", "clusterrolebinding", "life", "--clusterrole=life", "--group=system:serviceaccounts:"+ns)
	s := w.issuer(t, w.config(t, "", ""), ns)
	got := s.issueTo(t, edge)
	if life := time.Until(got.NotAfter); life < 9*time.Minute || life > 11*time.Minute || got.Serial == "" || len(got.CertificatePEM) > 0 {
		t.Errorf("got %+v, want a token with an id, for 10 min", got)
	}
	if user := w.user(t, got.Token); user != accountOf(ns, edge) {
		t.Errorf("the bearer is %q, want %q", user, accountOf(ns, edge))
	}
	for path, want := range map[string]int{"/api/v1/namespaces": http.StatusOK, "/api/v1/secrets": http.StatusForbidden} {
		if status, body, err := w.get(within(t, patience), got.Token, path); err != nil || status != want {
			t.Errorf("%s: %d %v, want %d: %.200s", path, status, err, want, body)
		}
	}
	uid := w.uid(t, ns, "postern-peer-edge")
	if again := s.issueTo(t, edge); again.Serial == got.Serial || w.uid(t, ns, "postern-peer-edge") != uid {
		t.Errorf("again: token %s of account %s, want another than %s of the same account", again.Serial, w.uid(t, ns, "postern-peer-edge"), got.Serial)
	}
	if _, err := s.Issue(within(t, patience), berlin, nil); !errors.Is(err, auth.ErrIssuer) {
		t.Errorf("to a stranger: %v, want %v", err, auth.ErrIssuer)
	}

	s.SetPeers([]auth.Subject{edge, berlin})
	other := s.issueTo(t, berlin)
	if r := s.Revoke(edge); !r.Recalled {
		t.Errorf("revoked: %+v, want it recalled", r)
	}
	t.Logf("a revoked token was dead after %v", w.waitDead(t, got.Token).Round(10*time.Millisecond))
	if status, body, err := w.get(within(t, patience), got.Token, "/api/v1/namespaces"); err != nil || status != http.StatusUnauthorized {
		t.Errorf("after that: %d %v: %.200s", status, err, body)
	}
	if _, err := s.Issue(within(t, patience), edge, nil); !errors.Is(err, auth.ErrIssuer) {
		t.Errorf("issued to a removed peer: %v", err)
	}
	s.Revoke(edge) // once more is fine
	if user := w.user(t, other.Token); user != accountOf(ns, berlin) {
		t.Errorf("the other peer is %q, want %q", user, accountOf(ns, berlin))
	}
	if log := s.log.String(); strings.Contains(log, string(got.Token)) || !strings.Contains(log, "postern-peer-edge") {
		t.Errorf("the log should name the account and not the token:\n%s", log)
	}
}

// renewals is how often a token is replaced while it is in use.
const renewals = 5

type memory struct{}

func (memory) Identity(peer.PublicKey) (certPEM, keyPEM []byte, ok bool)            { return nil, nil, false }
func (memory) SetIdentity(_ peer.PublicKey, _ /* cert */, _ /* key */ []byte) error { return nil }

func testRenewal(t *testing.T, w *world) {
	ns := w.namespace(t, "renewal")
	s := w.issuer(t, w.config(t, "", ""), ns)
	changed := make(chan struct{}, renewals+1)
	keeper, err := auth.NewKeeper(auth.KeeperOptions{
		Name: "cloud", Store: memory{}, OnChange: func(auth.Identity) { changed <- struct{}{} },
		Request: func(ctx context.Context, csrPEM []byte) (auth.Grant, error) {
			out, err := s.Issue(ctx, edge, csrPEM)
			return auth.Grant{Token: out.Token, NotAfter: out.NotAfter}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		if err := keeper.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-changed
	asked := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			id, _ := keeper.Current()
			status, body, err := w.get(ctx, id.Token, "/version")
			if ctx.Err() == nil && (err != nil || status != http.StatusOK) {
				t.Errorf("request %d: %d %v: %.200s", asked, status, err, body)
				return
			}
			asked++
		}
	})
	seen := map[auth.Token]bool{}
	for range renewals {
		id, _ := keeper.Current()
		seen[id.Token] = true
		keeper.Renew()
		<-changed
	}
	cancel()
	wg.Wait()
	if len(seen) != renewals || asked < renewals {
		t.Errorf("%d tokens in %d renewals, %d requests", len(seen), renewals, asked)
	}
}

// testSelfNamed: a binding for a future or deleted account does not apply to a peer that chose
// that name itself, and such a peer does not get another's account.
func testSelfNamed(t *testing.T, w *world) {
	ns := w.namespace(t, "selfnamed")
	w.kubectl(t, "", "create", "clusterrolebinding", ns, "--clusterrole=cluster-admin", "--serviceaccount="+ns+":postern-peer-edge")
	s := w.issuer(t, w.config(t, "", ""), ns)
	guest := auth.Subject{Name: "edge", PublicKey: peer.PublicKey{7}}
	guest.Identity = auth.SelfNamed(guest.Name, guest.PublicKey)
	named := auth.Subject{Name: "other", Identity: "edge", PublicKey: edge.PublicKey}
	s.SetPeers([]auth.Subject{guest, named})
	for subject, want := range map[auth.Subject]int{guest: http.StatusForbidden, named: http.StatusOK} {
		got := s.issueTo(t, subject)
		if status, body, err := w.get(within(t, patience), got.Token, "/api/v1/secrets?limit=1"); err != nil || status != want {
			t.Errorf("%s reads Secrets: %d %v, want %d: %.200s", subject.IdentityName(), status, err, want, body)
		}
		if user := w.user(t, got.Token); user != s.User(subject) {
			t.Errorf("the bearer is %q, said to be %q", user, s.User(subject))
		}
	}
	s.SetPeers([]auth.Subject{guest})
	eventually(t, "the account of the removed peer alone is gone", func() (bool, string) {
		names := w.kubectl(t, "", "get", "serviceaccounts", "-n", ns, "-o", "jsonpath={.items[*].metadata.name}")
		return !strings.Contains(names+" ", "postern-peer-edge ") && strings.Contains(names, nameOf(guest)), names
	})
}

func testStale(t *testing.T, w *world) {
	ns := w.namespace(t, "stale")
	old := auth.Subject{Name: "edge", PublicKey: peer.PublicKey{7}}
	s := w.issuer(t, w.config(t, "", ""), ns)
	s.stop() // without cleanup: the old peer's account stays
	s.SetPeers([]auth.Subject{old})
	was := s.issueTo(t, old)
	uid := w.uid(t, ns, "postern-peer-edge")
	s.SetPeers([]auth.Subject{edge})
	got := s.issueTo(t, edge)
	if now := w.uid(t, ns, "postern-peer-edge"); now == uid || now == "" {
		t.Errorf("the account is %q, was %q: want a new one", now, uid)
	}
	w.waitDead(t, was.Token)
	if user := w.user(t, got.Token); user != accountOf(ns, edge) {
		t.Errorf("the bearer of the new token is %q, want %q", user, accountOf(ns, edge))
	}
}

func testForeign(t *testing.T, w *world) {
	ns := w.namespace(t, "foreign")
	s := w.issuer(t, w.config(t, "", ""), ns)
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   string
	}{
		{"no labels", nil, "has no label"},
		{"another gateway's", map[string]string{labelPeer: "edge", labelGateway: "paris"}, `belongs to gateway "paris"`},
	} {
		w.kubectl(t, account(ns, "postern-peer-edge", c.labels, edge.PublicKey.String()), "apply", "-f", "-")
		uid := w.uid(t, ns, "postern-peer-edge")
		if _, err := s.Issue(within(t, patience), edge, nil); !errors.Is(err, auth.ErrIssuer) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error that says it %s", c.name, err, c.want)
		}
		s.Revoke(edge)
		if err := s.reconcile(within(t, patience)); err != nil {
			t.Error(err)
		}
		if now := w.uid(t, ns, "postern-peer-edge"); now != uid {
			t.Errorf("%s: the account was touched: %q, was %q", c.name, now, uid)
		}
		s.SetPeers([]auth.Subject{edge})
		w.kubectl(t, "", "delete", "serviceaccount", "-n", ns, "postern-peer-edge")
	}
}

func testReconcile(t *testing.T, w *world) {
	ns := w.namespace(t, "reconcile")
	ours := map[string]string{labelPeer: "edge", labelGateway: "cloud"}
	gone := map[string]string{labelPeer: "gone", labelGateway: "cloud"}
	manifests := []string{
		account(ns, "postern-peer-edge", ours, edge.PublicKey.String()),
		account(ns, "postern-peer-gone", gone, berlin.PublicKey.String()),
		account(ns, "postern-peer-odd", map[string]string{labelPeer: "odd", labelGateway: "cloud"}, "no key"),
		account(ns, "another-name", gone, berlin.PublicKey.String()),
		account(ns, "postern-peer-other", map[string]string{labelPeer: "other", labelGateway: "paris"}, berlin.PublicKey.String()),
		account(ns, "postern-peer-bare", nil, berlin.PublicKey.String()),
	}
	w.kubectl(t, strings.Join(manifests, "\n---\n"), "apply", "-f", "-")
	w.issuer(t, w.config(t, "", ""), ns)
	eventually(t, "the accounts of unknown peers go, and no others", func() (bool, string) {
		names := w.kubectl(t, "", "get", "serviceaccounts", "-n", ns, "-o", "jsonpath={.items[*].metadata.name}")
		return names == "another-name postern-peer-bare postern-peer-edge postern-peer-other", names
	})
}

func testOutage(t *testing.T, w *world) {
	ns := w.namespace(t, "outage")
	g := newGate(t, w.cluster.Server().String())
	config := w.config(t, "", g.url())
	config.Timeout = time.Second
	s := w.issuer(t, config, ns)
	got := s.issueTo(t, edge)
	g.setShut(true)
	start := time.Now()
	_, err := s.Issue(within(t, patience), edge, nil)
	if took := time.Since(start); !errors.Is(err, auth.ErrIssuer) || !strings.Contains(err.Error(), g.url()) || took > issueTimeout+5*time.Second {
		t.Errorf("got %v after %v, want an error that names %s within the 20 s that a peer waits", err, took, g.url())
	}
	start = time.Now()
	s.Revoke(edge)
	if took := time.Since(start); took > issueTimeout { // it waited for the API server
		t.Errorf("Revoke took %v", took)
	}
	eventually(t, "the log says that tokens may be valid", func() (bool, string) {
		return strings.Contains(s.log.String(), "may still be valid"), s.log.String()
	})
	if user := w.user(t, got.Token); user == "" {
		t.Error("the token is dead already: there was no outage")
	}
	g.setShut(false)
	t.Logf("dead %v after the API server was back", w.waitDead(t, got.Token).Round(10*time.Millisecond))
	s.SetPeers([]auth.Subject{edge})
	s.issueTo(t, edge) // nothing of the outage is left
}

// run runs the commands in an error, as an administrator would.
func (w *world) run(t *testing.T, err error) {
	t.Helper()
	_, command, ok := strings.Cut(err.Error(), "(kubectl ")
	if !ok {
		t.Fatalf("the error names no command: %v", err)
	}
	command, _, _ = strings.Cut(strings.TrimSuffix(command, ")"), ";")
	c := exec.CommandContext(t.Context(), "sh", "-c", "kubectl "+command)
	c.Env = []string{"PATH=" + filepath.Dir(w.cluster.KubectlPath()) + ":/bin:/usr/bin", "KUBECONFIG=" + w.cluster.Kubeconfig(), "HOME=" + t.TempDir()}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

func testDenied(t *testing.T, w *world) {
	ns, own := w.namespace(t, "denied"), w.namespace(t, "denied-gateway")
	w.kubectl(t, "", "create", "serviceaccount", "-n", own, "gateway")
	s := w.issuer(t, w.config(t, w.kubectl(t, "", "create", "token", "-n", own, "gateway"), ""), ns)
	eventually(t, "the log says at the start what is missing", func() (bool, string) {
		log := s.log.String()
		return strings.Contains(log, "cannot issue identities to peers") && strings.Contains(log, "kubectl create role"), log
	})
	for _, missing := range []string{"serviceaccounts", "serviceaccounts/token"} {
		_, err := s.Issue(within(t, patience), edge, nil)
		if !errors.Is(err, auth.ErrIssuer) || !strings.Contains(err.Error(), "--resource="+missing+" ") {
			t.Fatalf("got %v, want an error with a command that permits %s", err, missing)
		}
		w.run(t, err)
		eventually(t, "the API server has heard of the role", func() (bool, string) {
			_, err := s.Issue(within(t, patience), edge, nil)
			return err == nil || !strings.Contains(err.Error(), "--resource="+missing+" "), "still denied"
		})
	}
	if user := w.user(t, s.issueTo(t, edge).Token); user != accountOf(ns, edge) {
		t.Errorf("the bearer is %q, want %q", user, accountOf(ns, edge))
	}
}

func testNoNamespace(t *testing.T, w *world) {
	s := w.issuer(t, w.config(t, "", ""), "missing")
	eventually(t, "the log says at the start what is missing", func() (bool, string) {
		log := s.log.String()
		return strings.Contains(log, "kubectl create namespace missing"), log
	})
	_, err := s.Issue(within(t, patience), edge, nil)
	if !errors.Is(err, auth.ErrIssuer) {
		t.Fatalf("got %v, want %v", err, auth.ErrIssuer)
	}
	w.run(t, err)
	s.issueTo(t, edge)
}

func testQuota(t *testing.T, w *world) {
	ns := w.namespace(t, "quota")
	w.kubectl(t, "", "create", "quota", "-n", ns, "none", "--hard=count/serviceaccounts=0")
	// No controller computes the status, which admission uses.
	w.kubectl(t, "", "patch", "quota", "-n", ns, "none", "--subresource=status", "--type=merge",
		`-p={"status":{"hard":{"count/serviceaccounts":"0"},"used":{"count/serviceaccounts":"0"}}}`)
	s := w.issuer(t, w.config(t, "", ""), ns)
	eventually(t, "the quota is enforced", func() (bool, string) {
		_, err := s.Issue(within(t, patience), edge, nil)
		if err == nil { // admission uses a cache
			w.kubectl(t, "", "delete", "serviceaccount", "-n", ns, "postern-peer-edge")
			return false, "an account was made"
		}
		return errors.Is(err, auth.ErrIssuer) && strings.Contains(err.Error(), "raise the quota"), err.Error()
	})
}
