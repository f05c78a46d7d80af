package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/discovery/egress"
)

// The file takes precedence over the environment. The credentials in the environment's URL are
// never shown.
func TestWhichProxyIsTaken(t *testing.T) {
	for name, x := range map[string]struct {
		file string
		env  map[string]string
		want egress.Proxy
		from string // of the URL, as config view shows it
	}{
		"none":                                   {},
		"the environment":                        {env: map[string]string{"HTTPS_PROXY": "http://u:hunter2@p.example:3128", "NO_PROXY": "10.0.0.0/8, .local"}, want: egress.Proxy{URL: "http://p.example:3128", Username: "u", Password: "hunter2", NoProxy: "10.0.0.0/8,.local"}, from: "HTTPS_PROXY"},
		"in small letters, and without a scheme": {env: map[string]string{"https_proxy": "p.example:3128"}, want: egress.Proxy{URL: "http://p.example:3128"}, from: "https_proxy"},
		"another protocol":                       {env: map[string]string{"HTTPS_PROXY": "socks5://u:hunter2@p.example:1080"}},
		"for other schemes":                      {env: map[string]string{"HTTP_PROXY": "http://p.example:3128"}},
		"the file":                               {file: "{url: \"https://q.example:443\", username: e, passwordFile: good.key}", env: map[string]string{"HTTPS_PROXY": "http://u:hunter2@p.example:3128", "NO_PROXY": "x.example"}, want: egress.Proxy{URL: "https://q.example:443", Username: "e", NoProxy: "x.example"}, from: ":5"},
		"the file has another account":           {file: "{username: e, passwordFile: good.key, noProxy: [y.example]}", env: map[string]string{"HTTPS_PROXY": "http://u:hunter2@p.example:3128", "NO_PROXY": "x.example"}, want: egress.Proxy{URL: "http://p.example:3128", Username: "e", NoProxy: "y.example"}, from: "HTTPS_PROXY"},
		"the file wants none":                    {file: "{url: none}", env: map[string]string{"HTTPS_PROXY": "http://u:hunter2@p.example:3128"}, from: ":5"},
	} {
		t.Run(name, func(t *testing.T) {
			text := head
			if x.file != "" {
				text += "spec:\n  proxy: " + x.file + "\n"
			}
			file := writeConfig(t, text)
			r, err := Load(file, Overrides{LookupEnv: func(k string) (string, bool) { v, ok := x.env[k]; return v, ok }})
			if err != nil {
				t.Fatal(err)
			}
			got := r.Proxy
			if strings.Contains(x.file, "passwordFile") {
				if got.Password == "" || got.Password == "hunter2" {
					t.Errorf("the password is not the file's")
				}
				got.Password = ""
			}
			if got != x.want {
				t.Errorf("got %#v, want %#v", got, x.want)
			}
			from := ""
			for _, v := range r.Values() {
				if v.Path == "spec.proxy.url" {
					from = strings.TrimPrefix(v.Origin, file)
				}
			}
			if from != x.from {
				t.Errorf("the URL is from %q, want %q", from, x.from)
			}
			if text := fmt.Sprintf("%+v %v %v", r.Values(), r.Warnings, r.Document); strings.Contains(text, "hunter2") {
				t.Errorf("the password is shown: %s", text)
			}
			if (name == "another protocol") != (len(r.Warnings) > 0) {
				t.Errorf("warnings %v", r.Warnings)
			}
		})
	}
}

// Another password in the same file is a change, whose description does not contain it.
func TestAnotherProxyPasswordIsAChange(t *testing.T) {
	a := &Resolved{Proxy: egress.Proxy{URL: "http://p:1", Username: "u", Password: "hunter2"}}
	b := &Resolved{Proxy: egress.Proxy{URL: "http://p:1", Username: "u", Password: "hunter3"}}
	c := Diff(a, b)
	if len(c.Fields) != 1 || c.Fields[0].Path != "spec.proxy.passwordFile" || strings.Contains(fmt.Sprint(c), "hunter") || c.RestartError() != nil {
		t.Errorf("%+v", c)
	}
}
