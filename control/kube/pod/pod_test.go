package pod

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server may be unreachable when the pod starts, and hang later.
func TestTheOwnerIsAskedForUntilThereIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := metav1.OwnerReference{Kind: "StatefulSet", Name: "postern", UID: "1"}
		asked, away := 0, true
		p := &pod{o: Options{Logger: slog.New(slog.DiscardHandler)}}
		p.askOwner = func(ctx context.Context) (metav1.OwnerReference, error) {
			asked++
			switch {
			case asked == 1:
				return metav1.OwnerReference{}, errors.New("connection refused")
			case away:
				<-ctx.Done()
				return metav1.OwnerReference{}, ctx.Err()
			}
			return owner, nil
		}
		p.learnOwner(t.Context(), ownerTimeout)
		start := time.Now()
		p.learnOwner(t.Context(), ownerAgain)
		if took := time.Since(start); took != ownerAgain || p.owner.UID != "" {
			t.Errorf("a gateway waited %v and has %v, want %v and nothing", took, p.owner, ownerAgain)
		}
		away = false
		p.learnOwner(t.Context(), ownerAgain)
		p.learnOwner(t.Context(), ownerAgain)
		if p.owner != owner || asked != 3 {
			t.Errorf("got %v after %d questions, want %v after 3", p.owner, asked, owner)
		}
	})
}
