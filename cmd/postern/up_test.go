package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/config"
)

// aTicket is of control/ticket's vectors.
const aTicket = "postern1caaqa6aaaebagbafaydqqcikbmga2dqpcaireeyuculbogazdinryhi6d6csb4ajreykovdurn65znb665na3pz2butdqgxu5osktdvktnhgu2kvxeaaabldnrxxkzacaebagaolabyqrstmqyqacdnyaaaaaaaaaaaaaaaaaaemu3ahyyzwib46qymgvf26"

// What is written is the packages' configuration with the values filled in, and means them.
func TestTheFirstConfigurationMeansWhatWasAnswered(t *testing.T) {
	dir := t.TempDir()
	f := firstConfig{
		name: "edge", stateDir: filepath.Join(dir, "it's #1"), socket: filepath.Join(dir, "s.sock"), httpAddress: "127.0.0.1:9520", port: 0,
		advertise: []string{"203.0.113.10:51820", "gw.example.net:51820"}, stunServers: []string{"stun.example.net:3478"}, apiServer: "[::1]:6443",
	}
	if err := f.prepare(dir, true, auth.MakeLocalCA, -1); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "gateway.yaml")
	cfg, err := f.write(file, config.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Name != f.name || cfg.StateDir != f.stateDir || cfg.AdminSocket != f.socket || cfg.HTTPAddress != f.httpAddress || cfg.ListenPort != 0 ||
		len(cfg.Discovery.Advertise) != 2 || len(cfg.Discovery.STUNServers) != 1 || cfg.Services.APIServer.Address != f.apiServer || cfg.Services.LocalCA.KeyFile != f.issuer.key {
		t.Errorf("it means %+v", cfg)
	}
	got := bytes.Split(f.render(), []byte("\n"))
	was := bytes.Split(shippedConfig, []byte("\n"))
	if len(got) != len(was) {
		t.Fatalf("%d lines, want %d:\n%s", len(got), len(was), f.render())
	}
	changed := 0
	for i := range got {
		if !bytes.Equal(got[i], was[i]) {
			changed++
		}
	}
	if changed != 9 { // each field, once
		t.Errorf("%d lines are other ones, want 9:\n%s", changed, f.render())
	}
	if all, _ := os.ReadDir(dir); len(all) != 3 {
		t.Errorf("there is more than a configuration and a CA: %v", all)
	}
}

// What somebody has is not touched, whatever is wrong; what a package installed is filled in.
func TestUpOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gateway.yaml")
	up := func(args ...string) (int, string) {
		t.Helper()
		var stderr bytes.Buffer
		a := newApp(strings.NewReader(""), io.Discard, &stderr, func(string) string { return "" })
		return execute(t.Context(), a, append([]string{"up", "--config", file, "--socket", filepath.Join(dir, "s.sock")}, args...)), stderr.String()
	}
	for name, x := range map[string]struct {
		text string
		args []string
		says string
	}{
		"a mistake in the file":      {"kind: Gateway\n", nil, "apiVersion"},
		"a flag of another":          {"apiVersion: postern.dev/v1alpha1\nkind: Gateway\nmetadata: {name: edge}\n", []string{"--name", "cloud"}, "already exists, and disagrees with --name"},
		"no name":                    {string(shippedConfig), nil, "--name is missing"},
		"a wrong name":               {string(shippedConfig), []string{"--name", "Edge"}, "Edge"},
		"a wrong address":            {string(shippedConfig), []string{"--name", "edge", "--advertise", "203.0.113.10"}, "advertise"},
		"a wrong address and a CA":   {string(shippedConfig), []string{"--name", "edge", "--advertise", "203.0.113.10", "--issuer-ca", "--api-server", "127.0.0.1:6443"}, "advertise"},
		"a CA for nothing":           {string(shippedConfig), []string{"--name", "edge", "--issuer-ca"}, "--api-server"},
		"something that's no ticket": {string(shippedConfig), []string{"--name", "edge", "hello"}, "ticket"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(x.text), 0o600); err != nil {
				t.Fatal(err)
			}
			code, stderr := up(x.args...)
			after, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if code != exitUsage || !strings.Contains(stderr, x.says) || string(after) != x.text {
				t.Errorf("exit code %d, %s\nthe file is\n%s", code, stderr, after)
			}
			if all, _ := os.ReadDir(dir); len(all) != 1 {
				t.Errorf("something is left: %v", all)
			}
		})
	}
}

// The keys of an issuer that is there stay.
func TestAnIssuerIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	f := firstConfig{name: "edge", apiServer: "127.0.0.1:6443"}
	for range 2 {
		if err := f.prepare(dir, true, auth.MakeLocalCA, -1); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(f.issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.prepare(dir, true, auth.MakeLocalCA, -1); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(f.issuer.key)
	info, statErr := os.Stat(f.issuer.key)
	if err != nil || statErr != nil || !bytes.Equal(before, after) || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is another one, or has mode %v: %v", info.Mode(), err)
	}
}

// Half an issuer is told of and left as it is, and a failure leaves none.
func TestNoHalfOfAnIssuerIsLeft(t *testing.T) {
	for _, half := range []string{"issuer.key", "issuer.crt"} {
		dir := t.TempDir()
		there := filepath.Join(dir, half)
		if err := os.WriteFile(there, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := firstConfig{name: "edge", apiServer: "127.0.0.1:6443"}
		if err := f.prepare(dir, true, auth.MakeLocalCA, -1); err == nil || !strings.Contains(err.Error(), there) {
			t.Errorf("with %s alone: %v", half, err)
		}
		if got, err := os.ReadFile(there); err != nil || string(got) != "theirs" {
			t.Errorf("%s is %q, %v", half, got, err)
		}
	}
	dir := t.TempDir()
	f := firstConfig{name: "edge", apiServer: "127.0.0.1:6443"}
	failing := func(name string) ([]byte, []byte, error) { // somebody else is quicker
		if err := os.Mkdir(filepath.Join(dir, "issuer.crt"), 0o700); err != nil {
			t.Error(err)
		}
		return auth.MakeLocalCA(name)
	}
	if err := f.prepare(dir, true, failing, -1); err == nil {
		t.Error("a certificate cannot be written, and nobody says so")
	}
	if err := os.Remove(filepath.Join(dir, "issuer.crt")); err != nil {
		t.Fatal(err)
	}
	if err := f.prepare(dir, true, auth.MakeLocalCA, -1); err != nil {
		t.Errorf("it cannot be made after a failure: %v", err)
	}
}

// Whoever may write to the directory has no other file overwritten by a symbolic link.
func TestNoSymbolicLinkIsFollowed(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "theirs")
	file := filepath.Join(dir, "gateway.yaml")
	for path, text := range map[string]string{elsewhere: "theirs", filepath.Join(dir, "ca.crt"): "authorities"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"gateway.yaml.new", "api-server-ca.crt", "gateway.log"} {
		if err := os.Symlink(elsewhere, filepath.Join(dir, name)); err != nil {
			t.Skip(err) // a system on which not everybody may
		}
	}
	f := firstConfig{name: "edge", apiServer: "127.0.0.1:6443"}
	if _, err := f.write(file, config.Overrides{}); err != nil {
		t.Fatal(err)
	}
	f.apiServerCA = filepath.Join(dir, "ca.crt")
	if err := f.prepare(dir, false, auth.MakeLocalCA, -1); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.apiServerCA); err != nil || string(got) != "authorities" {
		t.Errorf("the copy is %q, %v", got, err)
	}
	if log, err := openLog(filepath.Join(dir, "gateway.log")); err == nil && noFollow != 0 {
		log.Close()
		t.Error("the log is written where a link leads")
	}
	if got, err := os.ReadFile(elsewhere); err != nil || string(got) != "theirs" {
		t.Errorf("what links lead to is %q, %v", got, err)
	}
}

func TestQuestions(t *testing.T) {
	ask := func(typed string) (*questions, *bytes.Buffer) {
		var out bytes.Buffer
		return newQuestions(t.Context(), strings.NewReader(typed), &out), &out
	}
	refuse := func(s string) error {
		if s == "bad" {
			return io.ErrNoProgress
		}
		return nil
	}
	q, out := ask("bad\n  good \n\n")
	var answer string
	if err := q.until("Name", "", &answer, refuse); err != nil || answer != "good" || !strings.Contains(out.String(), io.ErrNoProgress.Error()) {
		t.Errorf("%q, %v, %s", answer, err, out)
	}
	if err := q.until("Name", "other", &answer, refuse); err != nil || answer != "other" {
		t.Errorf("the default: %q, %v", answer, err)
	}
	if err := q.until("Name", "other", &answer, refuse); err == nil || !strings.Contains(err.Error(), "input ended") {
		t.Errorf("at the end: %v", err)
	}
	q, _ = ask(strings.Repeat("bad\n", 50))
	if err := q.until("Name", "", &answer, refuse); err == nil || !strings.Contains(err.Error(), io.ErrNoProgress.Error()) {
		t.Errorf("always wrong: %v", err)
	}
	for typed, want := range map[string]bool{"\n": true, "y\n": true, "No\n": false, "what\nn\n": false} {
		q, _ := ask(typed)
		if got, err := q.yes("Do it", true); err != nil || got != want {
			t.Errorf("%q: %v, %v", typed, got, err)
		}
	}
	for typed, want := range map[string]string{
		"\n":           "",
		aTicket + "\n": aTicket,
		"\"" + aTicket[:70] + "\n" + aTicket[70:] + "\"\n": aTicket,
		"$ postern join " + aTicket + "\n":                 aTicket,
		"nonsense\n\n" + aTicket + "\n":                    aTicket,
	} {
		q, _ := ask(typed)
		if got, err := q.ticket(); err != nil || got != want {
			t.Errorf("%q: %q, %v", typed, got, err)
		}
	}
}
