package kube

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/tunnel/peer"
)

// records is a log that can be read while it is written.
type records struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// Without the permission to watch accounts, as in older roles, there is one message with the fix,
// and the lists still count.
func TestAMissingRightToWatchIsExplainedOnce(t *testing.T) {
	log := &records{}
	refused := make(chan struct{}, 64)
	denied := refusal(403, metav1.StatusReasonForbidden, `serviceaccounts is forbidden: User "system:serviceaccount:postern:postern" cannot watch resource "serviceaccounts" in API group "" in the namespace "peers"`)
	denied.do = func() {
		select {
		case refused <- struct{}{}:
		default: // seen often enough
		}
	}
	list := answer{status: http.StatusOK, body: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccountList", "metadata": map[string]any{"resourceVersion": "1"},
		"items": []any{accountAnswer(edgePeer.PublicKey.String()).body},
	}}
	s := &scripted{answers: map[string][]answer{
		"POST serviceaccounts": {accountAnswer("")}, // of the preflight
		"POST token":           {refusal(404, metav1.StatusReasonNotFound, "nobody")},
		"GET serviceaccounts":  {list}, "ALL serviceaccounts": {list}, "WATCH serviceaccounts": {denied},
	}}
	i := s.issuer(t, log)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); i.Run(ctx) }()
	for range 5 { // the first is for a list by a watch, the others follow lists
		<-refused
	}
	id, known := i.Incarnation(edgePeer)
	stranger := edgePeer
	stranger.PublicKey = peer.PublicKey{9}
	none, _ := i.Incarnation(stranger)
	cancel()
	<-done
	if id != "1" || !known || none != "" {
		t.Errorf("edge has account %q, known %v, and one with its name %q; want 1, and none", id, known, none)
	}
	said := log.String()
	if n := strings.Count(said, "cannot watch the accounts of peers"); n != 1 || !strings.Contains(said, "kubectl create role postern-peer-accounts-watch -n peers --verb=list,watch") {
		t.Errorf("it is said %d times, want once and with the command:\n%s", n, said)
	}
	if strings.Contains(said, "Failed to watch") {
		t.Errorf("the reflector says it as well:\n%s", said)
	}
}

// The end of a problem is logged, and so is the same problem when it returns.
func TestBlindnessIsToldByItsKind(t *testing.T) {
	var log bytes.Buffer
	s := &scripted{}
	i := s.issuer(t, &log)
	b := blindness{log: i.o.Logger, accounts: i.accounts}
	denied, away := error(&apierrors.StatusError{ErrStatus: failure(403, metav1.StatusReasonForbidden, "no")}), context.DeadlineExceeded
	for _, c := range []struct {
		err  error
		want int
	}{{nil, 0}, {denied, 1}, {denied, 1}, {away, 2}, {denied, 2}, {away, 2}, {nil, 3}, {nil, 3}, {denied, 4}} {
		b.note(c.err)
		if n := strings.Count(log.String(), "\n"); n != c.want {
			t.Errorf("after %v there are %d lines, want %d:\n%s", c.err, n, c.want, &log)
		}
	}
}
