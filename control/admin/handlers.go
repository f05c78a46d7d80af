package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
)

// routes is the table of endpoints: method and path, required right, call.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	b := s.backend
	mux.Handle("GET /v1/status", answer(s, mayRead, func(r *request) (any, error) { return b.Status(r.Context()) }))
	mux.Handle("GET /v1/config", answer(s, mayRead, func(r *request) (any, error) { return b.Config(r.Context()) }))
	mux.Handle("POST /v1/netcheck", answer(s, mayRead, func(r *request) (any, error) { return b.NetCheck(r.Context()) }))
	mux.Handle("POST /v1/check", answer(s, mayRead, withBody(b.Check)))
	mux.Handle("GET /v1/checks", answer(s, mayRead, func(r *request) (any, error) { return b.Checks(r.Context()) }))
	mux.Handle("GET /v1/history", answer(s, mayRead, func(r *request) (any, error) {
		q, err := historyRequest(r.URL.Query())
		if err != nil {
			return nil, err
		}
		return b.History(r.Context(), q)
	}))
	mux.Handle("GET /v1/log", answer(s, mayRead, func(r *request) (any, error) {
		after, err := number(r.URL.Query().Get("after"))
		if err != nil {
			return nil, err
		}
		return b.Log(r.Context(), after)
	}))
	mux.Handle("POST /v1/invite", answer(s, mayChange, withBody(b.Invite)))
	mux.Handle("POST /v1/join", answer(s, mayChange, withBody(b.Join)))
	mux.Handle("POST /v1/accept", answer(s, mayChange, withBody(b.Accept)))
	mux.Handle("POST /v1/key/rotate", answer(s, mayChange, withBody(b.KeyRotate)))
	mux.Handle("POST /v1/reload", answer(s, mayChange, func(r *request) (any, error) { return nil, b.Reload(r.Context()) }))
	mux.Handle("POST /v1/config/try", answer(s, mayChange, withBody(b.ConfigTry)))
	mux.Handle("POST /v1/config/confirm", answer(s, mayChange, func(r *request) (any, error) { return nil, b.ConfigConfirm(r.Context()) }))
	mux.Handle("POST /v1/peers", answer(s, mayChange, withBody(func(ctx context.Context, q api.PeerAddRequest) (any, error) {
		return nil, b.PeerAdd(ctx, q)
	})))
	mux.Handle("PUT /v1/peers/{name}/allow", answer(s, mayChange, withNameAndBody(func(ctx context.Context, name string, q api.PeerAllowRequest) (any, error) {
		return nil, b.PeerAllow(ctx, name, q)
	})))
	mux.Handle("PATCH /v1/peers/{name}/local", answer(s, mayChange, withNameAndBody(func(ctx context.Context, name string, q api.PeerLocalRequest) (any, error) {
		return nil, b.PeerLocal(ctx, name, q)
	})))
	mux.Handle("POST /v1/peers/{name}/approve", answer(s, mayChange, func(r *request) (any, error) {
		var q api.PeerApproveRequest
		if len(r.body) > 0 { // a command from before fingerprints sends none, and gets an error
			if err := parse(r, &q); err != nil {
				return nil, err
			}
		}
		return nil, b.PeerApprove(r.Context(), r.PathValue("name"), q)
	}))
	mux.Handle("POST /v1/peers/{name}/try", answer(s, mayChange, withNameAndBody(b.PeerTry)))
	mux.Handle("POST /v1/peers/{name}/confirm", answer(s, mayChange, func(r *request) (any, error) {
		return nil, b.PeerConfirm(r.Context(), r.PathValue("name"))
	}))
	mux.Handle("POST /v1/peers/{name}/token", answer(s, mayChange, withNameAndBody(b.PeerToken)))
	mux.Handle("GET /v1/services", answer(s, mayRead, func(r *request) (any, error) {
		return b.ClusterServices(r.Context(), r.URL.Query().Get("peer"))
	}))
	mux.Handle("GET /v1/discovered", answer(s, mayRead, func(r *request) (any, error) { return b.Discovered(r.Context()) }))
	mux.Handle("POST /v1/discovered/{name}/approve", answer(s, mayChange, withNameAndBody(b.DiscoveredApprove)))
	mux.Handle("DELETE /v1/peers/{name}", answer(s, mayChange, func(r *request) (any, error) {
		return nil, b.PeerRemove(r.Context(), r.PathValue("name"), r.URL.Query().Get("force") == "true")
	}))
	mux.Handle("POST /v1/peers/{name}/ping", answer(s, mayChange, withNameAndBody(b.Ping)))
	mux.Handle("GET /v1/peers/{name}/kubeconfig", answer(s, mayChange, withName(b.Kubeconfig)))
	mux.Handle("GET /v1/peers/{name}/credential", answer(s, mayChange, withName(b.Credential)))
	mux.Handle("/", answer(s, mayRead, func(r *request) (any, error) {
		return nil, NotFound(fmt.Sprintf("the gateway knows no %s %s", r.Method, r.URL.Path), "is the command newer than the gateway? compare postern version and postern status")
	}))
	return mux
}

// answer checks the right, calls and writes the result.
func answer(s *Server, need right, call func(*request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, problem := s.authorize(r.Context(), need)
		if problem != nil {
			s.fail(w, problem)
			return
		}
		s.log.Debug("admin request", "method", r.Method, "path", r.URL.Path, "uid", who.uid, "pid", who.pid)
		body, err := readBody(w, r)
		if err != nil {
			s.fail(w, err)
			return
		}
		result, err := call(&request{r, body})
		if err != nil {
			s.fail(w, err)
			return
		}
		if result == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.write(w, http.StatusOK, result)
	})
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	var (
		e        *Error
		problems config.Problems
	)
	switch {
	case errors.As(err, &e):
	case errors.As(err, &problems):
		e = Usage(problems.Error(), "the old configuration stays in force")
	case errors.Is(err, context.Canceled): // if the client has gone, nobody reads this
		e = Failed("the gateway is stopping", "")
	default:
		e = Failed(err.Error(), "")
	}
	status := e.Status
	if status < http.StatusBadRequest {
		status = http.StatusInternalServerError
	}
	said := e.Problem
	said.Message = strings.ReplaceAll(said.Message, "\n", "; ") // errors.Join puts each on a line
	s.write(w, status, said)
}

func (s *Server) write(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		s.log.Error("failed to encode an admin response", "error", err)
		status, data = http.StatusInternalServerError, []byte(`{"message":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store") // Some answers are secrets.
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err != nil {
		s.log.Debug("failed to write an admin response", "error", err)
	}
}

// readBody reads the whole body before anything else happens: only then does the server watch the
// connection, and end the request's context when the command goes away.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return nil, fmt.Errorf("bound the request's arrival: %w", err)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		e := Usage(fmt.Sprintf("the request is larger than %d bytes", maxRequest), "")
		e.Status = http.StatusRequestEntityTooLarge
		return nil, e
	case err != nil:
		return nil, Usage(fmt.Sprintf("the request did not arrive: %v", err), "")
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("bound the request's arrival: %w", err)
	}
	return data, nil
}

// parse decodes the one JSON value of a request.
func parse(r *request, into any) error {
	if err := json.Unmarshal(r.body, into); err != nil {
		return Usage(fmt.Sprintf("the request is not the JSON that %s takes: %v", r.URL.Path, err), "")
	}
	return nil
}

// number parses a record number; empty means 0.
func number(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, Usage(fmt.Sprintf("%.30q is not the number of a record", text), "")
	}
	return n, nil
}

// historyRequest parses the parameters of a history request.
func historyRequest(q url.Values) (api.HistoryRequest, error) {
	out := api.HistoryRequest{Peers: q["peer"]}
	for name, into := range map[string]*time.Duration{"since": &out.Since, "step": &out.Step} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return out, Usage(fmt.Sprintf("%.30q is no %s such as 90s or 1h", text, name), "")
		}
		*into = d
	}
	return out, nil
}

// request is a request whose body has arrived.
type request struct {
	*http.Request
	body []byte
}

func withBody[Q, A any](call func(context.Context, Q) (A, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		var q Q
		if err := parse(r, &q); err != nil {
			return nil, err
		}
		return call(r.Context(), q)
	}
}

func withName[A any](call func(context.Context, string) (A, error)) func(*request) (any, error) {
	return func(r *request) (any, error) { return call(r.Context(), r.PathValue("name")) }
}

func withNameAndBody[Q, A any](call func(context.Context, string, Q) (A, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		var q Q
		if err := parse(r, &q); err != nil {
			return nil, err
		}
		return call(r.Context(), r.PathValue("name"), q)
	}
}
