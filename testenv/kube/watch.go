//go:build linux

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// watchEvent is a line of a watch (Kubernetes API concepts, "Efficient detection of changes").
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// WaitFor watches a path of the API server, such as
// "/api/v1/namespaces/default/pods?labelSelector=app%3Da", until match accepts the JSON of an
// existing or new object. If a component of the cluster ends meanwhile, the error contains the
// end of its log.
func (c *Cluster) WaitFor(ctx context.Context, path string, match func(object []byte) bool) error {
	ctx, stop := c.guard(ctx)
	defer stop()
	client := c.AdminClient()
	defer client.CloseIdleConnections()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	// Without a resource version a watch begins with all existing objects.
	url := c.URL() + path + separator + "watch=true"
	return watchUntil(ctx, client, url, match)
}

// errNotYet is returned by a server that has just started: it is ready before it can serve each
// resource ("storage is (re)initializing").
var errNotYet = errors.New("not served yet")

// watchUntil starts watches until match accepts an object.
func watchUntil(ctx context.Context, client *http.Client, url string, match func(object []byte) bool) error {
	var last json.RawMessage
	for {
		found, err := watch(ctx, client, url, func(e watchEvent) bool {
			last = e.Object
			return e.Type != "DELETED" && match(e.Object)
		})
		if errors.Is(err, errNotYet) {
			select {
			case <-time.After(readyPoll):
				continue
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("watch %s: %w; last seen: %s", url, context.Cause(ctx), last)
		}
		if found || err != nil {
			return err
		}
	}
}

// watch passes the events of one watch to match until match returns true or the watch ends. The
// server ends a watch after some time.
func watch(ctx context.Context, client *http.Client, url string, match func(watchEvent) bool) (found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return false, fmt.Errorf("watch %s: %s: %w", url, resp.Status, errNotYet)
	default:
		return false, fmt.Errorf("watch %s: %s", url, resp.Status)
	}
	events := json.NewDecoder(resp.Body)
	for {
		var e watchEvent
		if err := events.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				return false, nil
			}
			return false, fmt.Errorf("watch %s: %w", url, err)
		}
		switch e.Type {
		case "ADDED", "MODIFIED", "DELETED":
			if match(e) {
				return true, nil
			}
		case "ERROR":
			return false, fmt.Errorf("watch %s: %s", url, e.Object)
		}
	}
}

// conditions are the common part of the status of nodes, pods and deployments.
type conditions struct {
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// HasCondition returns a match for WaitFor: the condition, such as "Ready", is true.
func HasCondition(name string) func(object []byte) bool {
	return func(object []byte) bool {
		var o conditions
		if json.Unmarshal(object, &o) != nil {
			return false
		}
		for _, c := range o.Status.Conditions {
			if c.Type == name && c.Status == "True" {
				return true
			}
		}
		return false
	}
}

// Exists is a match for WaitFor that accepts any object.
func Exists([]byte) bool { return true }
