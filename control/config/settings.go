package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/control/api"
)

// Setting is a field that a flag and an environment variable can set.
type Setting struct {
	// Path of the field.
	Path string
	// Flag is its name without hyphens.
	Flag string
	Env  string
	// Usage describes it in one line; the value's placeholder is in backquotes.
	Usage string

	set func(*api.Gateway, string) error
}

// Settings lists them in file order. No variable is called POSTERN_PORT or POSTERN_SERVICE_…:
// Kubernetes itself sets those for a Service named postern.
func Settings() []Setting {
	return []Setting{
		{"metadata.name", "name", "POSTERN_NAME", "this gateway's `name`",
			func(g *api.Gateway, s string) error { g.Metadata.Name = s; return nil }},
		{"spec.stateDir", "state-dir", "POSTERN_STATE_DIR", "`directory` for the key, peers and tickets",
			func(g *api.Gateway, s string) error { g.Spec.StateDir = s; return nil }},
		{"spec.privateKeyFile", "private-key-file", "POSTERN_PRIVATE_KEY_FILE", "`file` with the private key",
			func(g *api.Gateway, s string) error { g.Spec.PrivateKeyFile = s; return nil }},
		{"spec.listen.port", "listen-port", "POSTERN_LISTEN_PORT", "UDP `port`; 0 chooses a free one", setPort},
		{"spec.mtu", "mtu", "POSTERN_MTU", "overlay MTU in `bytes`; 0 lets the gateway choose", setMTU},
		{"spec.admin.socket", "socket", "POSTERN_SOCKET", "admin socket's `path`",
			func(g *api.Gateway, s string) error { g.Spec.Admin.Socket = s; return nil }},
		{"spec.http.address", "http-address", "POSTERN_HTTP_ADDRESS", "`host:port` that serves /metrics, /livez and /readyz",
			func(g *api.Gateway, s string) error { g.Spec.HTTP.Address = s; return nil }},
		{"spec.discovery.advertise", "advertise", "POSTERN_ADVERTISE", "comma-separated `host:port`s to announce",
			func(g *api.Gateway, s string) error { g.Spec.Discovery.Advertise = list(s); return nil }},
		{"spec.discovery.stunServers", "stun-servers", "POSTERN_STUN_SERVERS", "comma-separated `host:port`s of STUN servers",
			func(g *api.Gateway, s string) error { g.Spec.Discovery.STUNServers = list(s); return nil }},
	}
}

func setPort(g *api.Gateway, s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return fmt.Errorf("%q is not a port from 0 to 65535", s)
	}
	port := uint16(n)
	g.Spec.Listen.Port = &port
	return nil
}

func setMTU(g *api.Gateway, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	g.Spec.MTU = n
	return nil
}

func list(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// applyOverrides applies environment and flags to the document and fills in the defaults. An empty
// variable counts as unset.
func applyOverrides(g *api.Gateway, origins map[string]Origin, o Overrides) Problems {
	var problems Problems
	for _, s := range Settings() {
		value, from := "", Origin{}
		if o.LookupEnv != nil {
			if v, ok := o.LookupEnv(s.Env); ok && v != "" {
				value, from = v, Origin{Source: FromEnv, Name: s.Env}
			}
		}
		if v, ok := o.Flags[s.Flag]; ok {
			value, from = v, Origin{Source: FromFlag, Name: s.Flag}
		}
		if from.Source == "" {
			continue
		}
		for path := range origins { // what the file said about the field's items no longer holds
			if strings.HasPrefix(path, s.Path+"[") {
				delete(origins, path)
			}
		}
		origins[s.Path] = from
		if err := s.set(g, value); err != nil {
			problems = append(problems, Problem{Origin: from, Path: s.Path, Message: err.Error()})
		}
	}
	return problems
}
