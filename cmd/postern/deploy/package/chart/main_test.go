package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/postern-dev/postern/cmd/postern/deploy/image/scratch"
)

const (
	folder = "../../chart"
	since  = "1767225600"
)

// packed packs the chart as v1.2.3 and gives both files.
func packed(t *testing.T, folder string) (tgz, artefact []byte) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv("SOURCE_DATE_EPOCH", since)
	if err := run(folder, out, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	var err error
	if tgz, err = os.ReadFile(filepath.Join(out, "postern-1.2.3.tgz")); err != nil {
		t.Fatal(err)
	}
	if artefact, err = os.ReadFile(filepath.Join(out, "postern-chart-1.2.3.oci.tar")); err != nil {
		t.Fatal(err)
	}
	return tgz, artefact
}

// untar gives the files of an archive.
func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if files[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPackedChartIsTheFolderWithItsVersion(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "chart")
	if err := os.CopyFS(copied, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".hidden", "values.yaml~", ".values.yaml.swp"} {
		if err := os.WriteFile(filepath.Join(copied, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tgz, _ := packed(t, copied)
	if again, _ := packed(t, folder); !bytes.Equal(tgz, again) {
		t.Error("the same chart elsewhere gives other bytes")
	}
	z, err := gzip.NewReader(bytes.NewReader(tgz))
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, z)
	for _, name := range []string{"values.yaml", "values.schema.json", "templates/NOTES.txt", "definitions/postern.dev_peers.yaml"} {
		want, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(files["postern/"+name], want) {
			t.Errorf("%s is %q", name, files["postern/"+name])
		}
	}
	if text := string(files["postern/Chart.yaml"]); !strings.Contains(text, "\nversion: 1.2.3\n") || !strings.Contains(text, "\nappVersion: v1.2.3\n") {
		t.Errorf("it says of itself\n%s", text)
	}
	for name := range files {
		if strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".swp") || strings.Contains(name, "hidden") {
			t.Errorf("%s is in it", name)
		}
	}
}

func TestAnArtefactHoldsThePackedChart(t *testing.T) {
	tgz, artefact := packed(t, folder)
	if _, again := packed(t, folder); !bytes.Equal(artefact, again) {
		t.Error("two artefacts of one chart differ")
	}
	files := untar(t, bytes.NewReader(artefact))
	// blob is what a descriptor is of.
	blob := func(d v1.Descriptor) []byte {
		t.Helper()
		content := files[scratch.BlobPath(d.Digest)]
		if digest, size, err := v1.SHA256(bytes.NewReader(content)); err != nil || digest != d.Digest || size != d.Size {
			t.Fatalf("%s of %d bytes is %s of %d: %v", d.Digest, d.Size, digest, size, err)
		}
		return content
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(files["index.json"]))
	if err != nil || len(index.Manifests) != 1 || index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("the index is %+v, %v", index, err)
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(blob(index.Manifests[0])))
	if err != nil || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != contentType || manifest.Config.MediaType != configType {
		t.Fatalf("the manifest is %+v, %v", manifest, err)
	}
	if !bytes.Equal(blob(manifest.Layers[0]), tgz) {
		t.Error("its layer is not the packed chart")
	}
	var config struct{ Name, Version, AppVersion string }
	if err := json.Unmarshal(blob(manifest.Config), &config); err != nil || config.Name != "postern" || config.Version != "1.2.3" || config.AppVersion != "v1.2.3" {
		t.Errorf("its configuration is %+v, %v", config, err)
	}
}
