package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

func (a *app) bundleCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "bundle",
		Short: "Collect diagnostics in an archive, without secrets",
		Long: "Write an archive (tar.gz) with the gateway's status, new check results, paths and their history, network " +
			"state, configuration, recent log and versions. Private keys, preshared keys, tickets, tokens and " +
			"certificate keys are left out, and anything that looks like one is redacted. Addresses, names and public " +
			"keys are included: read the archive before you share it.",
		Example: "  postern bundle -f edge.tar.gz",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.bundle(c.Context(), file) },
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the archive's `FILE`, - for stdout (default postern-bundle-NAME-TIME.tar.gz)")
	return c
}

// member is a file of the bundle.
type member struct {
	name string
	data []byte
}

func (a *app) bundle(ctx context.Context, file string) error {
	if _, ok := terminal(a.stdout); ok && file == "-" {
		return usagef("redirect it, or use -f FILE", "bundle: an archive cannot go to a terminal")
	}
	status, err := a.client().Status(ctx)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	files := a.collect(ctx, status, now)
	known := publicKeys(status)
	for i := range files {
		files[i].data = redact(files[i].data, known)
	}
	if file == "-" {
		return writeBundle(a.stdout, files, now)
	}
	if file == "" {
		file = fmt.Sprintf("postern-bundle-%s-%s.tar.gz", bundleName(status.Gateway.Name), now.Format("20060102-150405"))
	}
	if err := bundleFile(file, files, now); err != nil {
		return failedf("choose another place with -f FILE", "bundle: %w", err)
	}
	fmt.Fprintf(a.stderr, "postern: wrote %s; it contains addresses, names and public keys, so read it before you share it\n", tui.Printable(file))
	return nil
}

// bundledStep is the resolution of the history in a bundle.
const bundledStep = 5 * time.Minute

// collect requests everything from the gateway. A failed request becomes a file with the error: a
// partial bundle is better than none.
func (a *app) collect(ctx context.Context, status api.Status, now time.Time) []member {
	client := a.client()
	var files []member
	add := func(name string, document any, err error) {
		data := []byte(nil)
		if err == nil {
			data, err = json.MarshalIndent(document, "", "  ")
		}
		if err != nil {
			name, data = strings.TrimSuffix(name, filepath.Ext(name))+".error", []byte(err.Error())
		}
		files = append(files, member{name, append(data, '\n')})
	}
	add("version.json", map[string]string{
		"command": version, "gateway": status.Gateway.Version, "go": runtime.Version(),
		"platform": runtime.GOOS + "/" + runtime.GOARCH, "madeAt": now.Format(time.RFC3339),
	}, nil)
	add("status.json", status, nil)
	report, err := client.Check(ctx, api.CheckRequest{})
	add("checks.json", report, err)
	if err == nil {
		files = append(files, member{"checks.txt", []byte(tui.Checks(report, status, 0, tui.Options{Now: now}))})
	}
	for _, p := range status.Peers {
		name := "path-" + bundleName(p.Name) + ".txt"
		files = append(files, member{name, []byte(tui.Path(p, 0, tui.Options{Now: now}))})
	}
	past, err := client.History(ctx, api.HistoryRequest{Step: bundledStep})
	add("history.json", past, err)
	netcheck, err := client.NetCheck(ctx)
	add("netcheck.json", netcheck, err)
	values, err := client.Config(ctx)
	add("config.json", values, err)
	log, err := client.Log(ctx, 0)
	if err != nil {
		add("log.txt", nil, err)
	} else {
		files = append(files, member{"log.txt", logText(log)})
	}
	return files
}

// bundleName returns a valid file name.
func bundleName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, name)
}

// logText writes the alarms, whose records may have been dropped, and the records, one a line,
// oldest first.
func logText(l api.Log) []byte {
	var b bytes.Buffer
	for i := range l.Alarms {
		a := &l.Alarms[i]
		fmt.Fprintf(&b, "%s ALARM %s\n", a.Last.Format("2006-01-02T15:04:05.000Z07:00"), tui.Alarm(a))
	}
	for _, r := range l.Records {
		fmt.Fprintf(&b, "%s %-5s %s", r.Time.Format("2006-01-02T15:04:05.000Z07:00"), tui.Printable(r.Level), tui.Printable(r.Message))
		for _, at := range r.Attrs {
			fmt.Fprintf(&b, " %s=%q", tui.Printable(at.Key), tui.Printable(at.Value))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// bundleFile writes a new file that only this user may read.
func bundleFile(name string, files []member, now time.Time) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(name) // a partial archive is useless
		}
	}()
	return writeBundle(f, files, now)
}

func writeBundle(w io.Writer, files []member, now time.Time) error {
	zw := gzip.NewWriter(w)
	tw := tar.NewWriter(zw)
	for _, f := range files {
		header := &tar.Header{Name: "postern-bundle/" + f.name, Mode: 0o600, Size: int64(len(f.data)), ModTime: now, Typeflag: tar.TypeReg}
		if err := tw.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		if _, err := tw.Write(f.data); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

// publicKeys returns the keys that a bundle may show.
func publicKeys(s api.Status) map[string]bool {
	keys := map[string]bool{s.Gateway.PublicKey: true}
	for _, p := range s.Peers {
		keys[p.PublicKey] = true
	}
	return keys
}
