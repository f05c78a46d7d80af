//go:build linux

package kube

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A server that has just started refuses watches that it cannot serve yet.
func TestWatchOutlastsAServerThatIsNotReadyYet(t *testing.T) {
	answers := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusOK, http.StatusOK}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := answers[asked]
		asked++
		w.WriteHeader(status)
		switch asked { // the first watch that is served ends before what is waited for comes
		case 3:
			_, _ = w.Write([]byte(`{"type":"ADDED","object":{"n":1}}` + "\n"))
		case 4:
			_, _ = w.Write([]byte(`{"type":"MODIFIED","object":{"n":2}}` + "\n"))
		}
	}))
	defer server.Close()
	err := watchUntil(t.Context(), server.Client(), server.URL, func(object []byte) bool { return strings.Contains(string(object), "2") })
	if err != nil || asked != len(answers) {
		t.Errorf("got %v after %d requests, want the object after %d", err, asked, len(answers))
	}
}

func TestWatchSaysWhatItWaitedFor(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		cancel()
	}))
	defer server.Close()
	err := watchUntil(ctx, server.Client(), server.URL, Exists)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("got %v, want that the watch of %s was given up", err, server.URL)
	}
}
