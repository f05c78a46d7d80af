// Command chart packs the Helm chart for a release: NAME-VERSION.tgz, as `helm package` does, and
// NAME-chart-VERSION.oci.tar, the same as an OCI artefact for registries. The same files give the same
// bytes.
//
//	go run ./cmd/postern/deploy/package/chart -o dist -version v1.0.0
//
// The chart's version is VERSION without its v, and its appVersion VERSION, which is the image's
// tag. The tgz goes to a registry by `helm push`, the OCI archive by `skopeo copy
// oci-archive:FILE docker://…` or `oras cp --from-oci-layout`. SOURCE_DATE_EPOCH (seconds since
// 1970) is the time of all files; without it that is 1970-01-01.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/cmd/postern/deploy/epoch"
	"github.com/postern-dev/postern/cmd/postern/deploy/image/scratch"
)

// What Helm takes for a chart: https://helm.sh/docs/topics/registries.
const (
	configType  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	contentType types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// description is the file of a chart that says what it is.
const description = "Chart.yaml"

func main() {
	flags := flag.NewFlagSet("chart", flag.ExitOnError)
	out := flags.String("o", "", "folder to write to (required)")
	version := flags.String("version", "", "version of the release, such as v1.0.0 (required)")
	folder := flags.String("chart", "cmd/postern/deploy/chart", "folder of the chart")
	_ = flags.Parse(os.Args[1:]) // which ends the program on an error
	if err := run(*folder, *out, *version); err != nil {
		fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		os.Exit(1)
	}
}

func run(folder, out, version string) error {
	if out == "" || version == "" {
		return errors.New("usage: chart -o FOLDER -version V")
	}
	at, err := epoch.Time()
	if err != nil {
		return err
	}
	c, err := read(folder, version)
	if err != nil {
		return err
	}
	content, err := c.pack(at)
	if err != nil {
		return err
	}
	artefact, err := c.artefact(content, at)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(out, 0o755),
		os.WriteFile(filepath.Join(out, c.meta.Name+"-"+c.meta.Version+".tgz"), content, 0o644),
		os.WriteFile(filepath.Join(out, c.meta.Name+"-chart-"+c.meta.Version+".oci.tar"), artefact, 0o644))
}

// chart is one of a version.
type chart struct {
	meta struct{ Name, Version, Description, Home string }
	// config is what it says of itself, in JSON.
	config []byte
	paths  []string // sorted
	files  map[string][]byte
}

// read reads a chart's files, without those that are hidden or an editor's, and gives it the
// version.
func read(folder, version string) (*chart, error) {
	c := &chart{files: map[string][]byte{}}
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return nil
		case strings.HasPrefix(name, "."), strings.HasSuffix(name, "~"), strings.HasSuffix(name, ".swp"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err = filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		c.paths, c.files[name] = append(c.paths, name), text
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	text := c.files[description]
	for key, value := range map[string]string{"version": strings.TrimPrefix(version, "v"), "appVersion": version} {
		line := regexp.MustCompile("(?m)^" + key + ": .*$")
		if len(line.FindAll(text, -1)) != 1 {
			return nil, fmt.Errorf("%s of %s has not one line %s", description, folder, key)
		}
		text = line.ReplaceAllLiteral(text, []byte(key+": "+value))
	}
	c.files[description] = text
	var described map[string]any
	if err := yaml.Unmarshal(text, &described); err != nil {
		return nil, fmt.Errorf("read %s: %w", description, err)
	}
	if c.config, err = json.Marshal(described); err != nil {
		return nil, fmt.Errorf("read %s: %w", description, err)
	}
	if err := json.Unmarshal(c.config, &c.meta); err != nil {
		return nil, fmt.Errorf("read %s: %w", description, err)
	}
	return c, nil
}

// pack is the chart as `helm package` writes it.
func (c *chart) pack(at time.Time) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	for _, path := range c.paths {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: c.meta.Name + "/" + path, Mode: 0o644, Size: int64(len(c.files[path])), ModTime: at}
		if err := t.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := t.Write(c.files[path]); err != nil {
			return nil, err
		}
	}
	err = errors.Join(t.Close(), z.Close())
	return out.Bytes(), err
}

// artefact is a packed chart as an archive of an OCI layout, with the annotations that Helm gives it.
func (c *chart) artefact(content []byte, at time.Time) ([]byte, error) {
	blobs := map[string][]byte{}
	add := func(kind types.MediaType, blob []byte) (v1.Descriptor, error) {
		digest, size, err := v1.SHA256(bytes.NewReader(blob))
		blobs[scratch.BlobPath(digest)] = blob
		return v1.Descriptor{MediaType: kind, Size: size, Digest: digest}, err
	}
	config, err := add(configType, c.config)
	if err != nil {
		return nil, err
	}
	layer, err := add(contentType, content)
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{layer},
		Annotations: map[string]string{
			"org.opencontainers.image.title": c.meta.Name, "org.opencontainers.image.version": c.meta.Version,
			"org.opencontainers.image.description": c.meta.Description, "org.opencontainers.image.url": c.meta.Home,
			"org.opencontainers.image.created": at.Format(time.RFC3339),
		},
	})
	if err != nil {
		return nil, err
	}
	top, err := add(types.OCIManifestSchema1, manifest)
	if err != nil {
		return nil, err
	}
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": c.meta.Version}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{top}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = scratch.WriteLayout(&out, index, blobs)
	return out.Bytes(), err
}
