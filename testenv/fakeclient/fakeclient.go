// Package fakeclient has a client of an API server that a function answers. It is for unit tests; it
// must not be linked into the program, since it knows all types of Kubernetes (9 MB).
package fakeclient

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// New returns a client whose requests answer answers, one at a time, without a connection. The
// answers are a status and JSON. client-go's own fake stores the last request without a lock, which
// is a data race where several are sent at a time.
func New(answer func(*http.Request) (status int, body string)) rest.Interface {
	client, err := rest.NewRESTClient(&url.URL{Scheme: "http", Host: "localhost"}, "",
		rest.ClientContentConfig{ContentType: runtime.ContentTypeJSON, Negotiator: runtime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), schema.GroupVersion{})},
		nil, &http.Client{Transport: &answers{answer: answer}})
	if err != nil {
		panic(err) // it only checks the URL
	}
	return client
}

// answers is a transport that answers by itself.
type answers struct {
	mu     sync.Mutex
	answer func(*http.Request) (int, string)
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	status, body := a.answer(r)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}
