package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tui"
)

// defaultConfig is where the packages and their unit have the configuration.
const defaultConfig = "/etc/postern/gateway.yaml"

// shippedConfig is the configuration that the packages install: all fields that matter at first,
// with comments, and no name. A gateway does not start with it.
//
//go:embed deploy/package/gateway.yaml
var shippedConfig []byte

// existing is what exists at the configuration's path.
type existing int

const (
	absent  existing = iota
	shipped          // installed by a package, unchanged
	present          // written by someone
)

// lookAt returns what exists at the configuration's path.
func lookAt(path string) (existing, error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return present, usagef("", "up: read the configuration: %w", err)
	case bytes.Equal(data, shippedConfig):
		return shipped, nil
	}
	return present, nil
}

// firstConfig are the values that `postern up` writes into a configuration; empty ones keep their
// defaults.
type firstConfig struct {
	name, stateDir, socket, httpAddress string
	port                                uint16
	advertise, stunServers              []string
	// apiServer is host:port, apiServerCA the file of the authorities of its certificate.
	apiServer, apiServerCA string
	// issuer are the files of the CA that issues identities for it.
	issuer certificateFiles
}

// absolute makes the paths that start at the working directory absolute, because those in the
// file start at its directory.
func (f *firstConfig) absolute() error {
	for _, path := range []*string{&f.stateDir, &f.socket} {
		if *path == "" {
			continue
		}
		whole, err := filepath.Abs(*path)
		if err != nil {
			return usagef("", "up: %s: %w", *path, err)
		}
		*path = whole
	}
	return nil
}

type certificateFiles struct{ cert, key string }

// render inserts the values into the shipped configuration, with its comments.
func (f firstConfig) render() []byte {
	out := shippedConfig
	set := func(field string, given bool, format string, values ...any) {
		if !given {
			return
		}
		for i, v := range values {
			quoted, _ := json.Marshal(v) // which texts, lists and numbers have in YAML too
			values[i] = string(quoted)
		}
		line := regexp.MustCompile(`(?m)^( +)(?:# )?` + field + `: .*$`)
		out = line.ReplaceAllFunc(out, func(old []byte) []byte {
			indent := line.FindSubmatch(old)[1]
			return fmt.Appendf(nil, "%s%s: "+format, append([]any{indent, field}, values...)...)
		})
	}
	set("name", true, "%s", f.name)
	set("stateDir", f.stateDir != "", "%s", f.stateDir)
	set("port", f.port != config.DefaultListenPort, "%s", f.port)
	set("admin", f.socket != "", "{socket: %s}", f.socket)
	set("http", f.httpAddress != "", "{address: %s}", f.httpAddress)
	set("advertise", len(f.advertise) > 0, "%s", f.advertise)
	set("stunServers", len(f.stunServers) > 0, "%s", f.stunServers)
	if f.apiServerCA != "" {
		set("apiServer", true, "{address: %s, serverName: kubernetes.default.svc, caFile: %s}", f.apiServer, f.apiServerCA)
	} else {
		set("apiServer", f.apiServer != "", "{address: %s, serverName: kubernetes.default.svc}", f.apiServer)
	}
	set("auth", f.issuer.cert != "", "{issuer: {localCA: {certFile: %s, keyFile: %s}}}", f.issuer.cert, f.issuer.key)
	return out
}

// check reports whether the configuration is valid except for files that have yet to be created,
// in the same directory.
func (f firstConfig) check(path string, o config.Overrides) error {
	f.issuer = certificateFiles{}
	return f.draft(path, func(draft string) error {
		_, err := loadConfig(draft, o)
		return err
	})
}

// write validates the configuration and puts it in place atomically.
func (f firstConfig) write(path string, o config.Overrides) (cfg *config.Resolved, err error) {
	err = f.draft(path, func(draft string) error {
		if _, err := loadConfig(draft, o); err != nil {
			return err
		}
		if err := os.Rename(draft, path); err != nil {
			return err
		}
		cfg, err = loadConfig(path, o)
		return err
	})
	return cfg, err
}

// draft writes the configuration to a temporary file in the same directory, for use.
func (f firstConfig) draft(path string, use func(draft string) error) error {
	draft, err := writeBeside(path, f.render())
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(draft) }() // unless it became the configuration
	err = use(draft)
	if problems, ok := errors.AsType[config.Problems](err); ok {
		for i := range problems {
			problems[i].Origin = answered(problems[i], path)
		}
	}
	return err
}

// answered returns the flag that sets the field of a problem in a draft of the configuration at
// path; without one, the field is in the file to be.
func answered(p config.Problem, path string) config.Origin {
	if p.Origin.Source != config.FromFile {
		return p.Origin
	}
	flags := map[string]string{"spec.services.apiServer.address": "api-server", "spec.services.apiServer.caFile": "api-server-ca"}
	for _, s := range config.Settings() {
		flags[s.Path] = s.Flag
	}
	field, _, _ := strings.Cut(p.Path, "[")
	if flag := flags[field]; flag != "" {
		return config.Origin{Source: config.FromFlag, Name: flag}
	}
	p.Origin.Name = path
	return p.Origin
}

// writeBeside writes a file that everyone may read, with a random name, into the directory of
// path.
func writeBeside(path string, data []byte) (string, error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".*-"+filepath.Base(path))
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}

// apiServers are the paths of the API server's CA certificate, and its addresses, in
// distributions of Kubernetes.
var apiServers = []struct{ ca, address string }{
	{"/var/lib/rancher/k3s/server/tls/server-ca.crt", "127.0.0.1:6443"},
	{"/var/lib/rancher/rke2/server/tls/server-ca.crt", "127.0.0.1:6443"},
	{"/etc/kubernetes/pki/ca.crt", "127.0.0.1:6443"},
	{"/var/lib/k0s/pki/ca.crt", "127.0.0.1:6443"},
	{"/var/snap/microk8s/current/certs/ca.crt", "127.0.0.1:16443"},
}

// apiServerHere returns the API server of this host, if there seems to be one.
func apiServerHere() (address, ca string) {
	for _, s := range apiServers {
		if _, err := os.Stat(s.ca); err == nil {
			return s.address, s.ca
		}
	}
	return "", ""
}

// prepare creates the files that the configuration refers to: a copy of the API server's
// authorities, which the gateway's user may not be able to read at their original place, and the
// issuer's CA. It replaces an existing copy, and keeps an existing CA.
func (f *firstConfig) prepare(dir string, issuer bool, make func(name string) (cert, key []byte, err error), group int) error {
	if f.apiServerCA != "" {
		data, err := os.ReadFile(f.apiServerCA)
		if err != nil {
			return usagef("", "up: %w", err)
		}
		f.apiServerCA = filepath.Join(dir, "api-server-ca.crt")
		copied, err := writeBeside(f.apiServerCA, data)
		if err != nil {
			return err
		}
		if err := os.Rename(copied, f.apiServerCA); err != nil {
			return errors.Join(err, os.Remove(copied))
		}
	}
	if !issuer {
		return nil
	}
	f.issuer = certificateFiles{cert: filepath.Join(dir, "issuer.crt"), key: filepath.Join(dir, "issuer.key")}
	_, noCert := os.Lstat(f.issuer.cert)
	_, noKey := os.Lstat(f.issuer.key)
	switch {
	case noCert == nil && noKey == nil:
		return nil // Load tells if it is none.
	case noCert == nil || noKey == nil:
		return usagef("put the other one beside it, or remove it to have a CA created", "up: only one of the CA's files %s and %s exists", tui.Printable(f.issuer.cert), tui.Printable(f.issuer.key))
	}
	cert, key, err := make(f.name)
	if err != nil {
		return err
	}
	if err := writeNew(f.issuer.key, key, group); err != nil {
		return err
	}
	if err := writeNew(f.issuer.cert, cert, group); err != nil {
		return errors.Join(err, os.Remove(f.issuer.key))
	}
	return nil
}

// writeNew creates a file, for its owner and a group; -1 means no group.
func writeNew(path string, data []byte, group int) error {
	mode := os.FileMode(0o600)
	if group >= 0 {
		mode = 0o640
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if group >= 0 {
		err = errors.Join(err, file.Chown(-1, group))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// notWritable returns what a failure to write files means for the user of `postern up`.
func notWritable(err error, path string) error {
	if errors.Is(err, fs.ErrPermission) {
		return usagef("run it as root, or name other places with --config, --state-dir and --socket", "up: %s cannot be written: %w", tui.Printable(path), err)
	}
	return err
}
