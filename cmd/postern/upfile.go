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

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tui"
)

// defaultConfig is where the packages have the configuration, and their unit looks for it.
const defaultConfig = "/etc/postern/gateway.yaml"

// shippedConfig is the configuration that the packages install: all fields that matter at first,
// with comments, and no name. A gateway does not start with it.
//
//go:embed deploy/package/gateway.yaml
var shippedConfig []byte

// existing is what there is at the place of the configuration.
type existing int

const (
	absent  existing = iota
	shipped          // what a package installed, untouched
	present          // someone's
)

// lookAt says what is at the place of the configuration.
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

// firstConfig is what `postern up` writes into a configuration; what is empty keeps its default.
type firstConfig struct {
	name, stateDir, socket, httpAddress string
	port                                uint16
	advertise, stunServers              []string
	// apiServer is host:port, apiServerCA the file of the authorities of its certificate.
	apiServer, apiServerCA string
	// issuer are the files of the CA that issues identities for it.
	issuer certificateFiles
}

type certificateFiles struct{ cert, key string }

// render writes the values into the configuration as it is shipped, with its comments.
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

// check reports whether the configuration is right except for the files that are yet to be made, beside
// its place.
func (f firstConfig) check(path string, o config.Overrides) error {
	f.issuer = certificateFiles{}
	return f.draft(path, func(draft string) error {
		_, err := loadConfig(draft, o)
		return err
	})
}

// write puts the configuration in its place once it is known to be right. Nobody reads half of it.
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

// draft writes the configuration beside its place, for use.
func (f firstConfig) draft(path string, use func(draft string) error) error {
	draft, err := writeBeside(path, f.render())
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(draft) }() // unless it became the configuration
	return use(draft)
}

// writeBeside writes a file that everyone may read, of a name that nobody knows before, into the
// directory of path.
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

// apiServers are where distributions of Kubernetes have the certificate of their API server's
// authority, and where it answers.
var apiServers = []struct{ ca, address string }{
	{"/var/lib/rancher/k3s/server/tls/server-ca.crt", "127.0.0.1:6443"},
	{"/var/lib/rancher/rke2/server/tls/server-ca.crt", "127.0.0.1:6443"},
	{"/etc/kubernetes/pki/ca.crt", "127.0.0.1:6443"},
	{"/var/lib/k0s/pki/ca.crt", "127.0.0.1:6443"},
	{"/var/snap/microk8s/current/certs/ca.crt", "127.0.0.1:16443"},
}

// apiServerHere is the API server of this host, if one is seen.
func apiServerHere() (address, ca string) {
	for _, s := range apiServers {
		if _, err := os.Stat(s.ca); err == nil {
			return s.address, s.ca
		}
	}
	return "", ""
}

// prepare makes the files that the configuration names: a copy of the API server's authorities,
// which the gateway's user may not be able to read where they are, and the issuer's CA. What is
// there already stays.
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
		return usagef("put the other one beside it, or remove it to have a CA made", "up: only one of the CA's files %s and %s exists", tui.Printable(f.issuer.cert), tui.Printable(f.issuer.key))
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

// writeNew writes a file that was not there, for its owner and a group; -1 is none.
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

// notWritable is what an error of writing files means for who runs `postern up`.
func notWritable(err error, path string) error {
	if errors.Is(err, fs.ErrPermission) {
		return usagef("run it as root, or name other places with --config, --state-dir and --socket", "up: %s cannot be written: %w", tui.Printable(path), err)
	}
	return err
}
