package scratch

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Annotations of an image in the archive's index: containerd looks for the first, other
// readers for the second.
const (
	annotationContainerd = "io.containerd.image.name"
	annotationRefName    = "org.opencontainers.image.ref.name"
)

// Write writes images as an OCI archive to w and returns the digest of each, in order:
// that of its index, by which it can be pulled.
func Write(w io.Writer, images ...Image) ([]v1.Hash, error) {
	top := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	blobs := map[string][]byte{} // by path in the layout
	var digests []v1.Hash
	for _, i := range images {
		index, err := i.index()
		if err != nil {
			return nil, err
		}
		digest, err := index.Digest()
		if err == nil {
			err = addIndex(blobs, digest, index)
		}
		if err != nil {
			return nil, fmt.Errorf("encode image %s: %w", i.Name, err)
		}
		digests = append(digests, digest)
		top = mutate.AppendManifests(top, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
			Annotations: map[string]string{annotationContainerd: i.Name, annotationRefName: i.Name},
		}})
	}
	raw, err := top.RawManifest()
	if err != nil {
		return nil, fmt.Errorf("encode the archive's index: %w", err)
	}
	return digests, WriteLayout(w, raw, blobs)
}

// addIndex collects an index and all that it refers to.
func addIndex(blobs map[string][]byte, digest v1.Hash, index v1.ImageIndex) error {
	raw, err := index.RawManifest()
	if err != nil {
		return err
	}
	blobs[BlobPath(digest)] = raw
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		if err := addImage(blobs, m.Digest, img); err != nil {
			return err
		}
	}
	return nil
}

// addImage collects a manifest, its configuration and its layers.
func addImage(blobs map[string][]byte, digest v1.Hash, img v1.Image) error {
	raw, err := img.RawManifest()
	if err != nil {
		return err
	}
	blobs[BlobPath(digest)] = raw
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	name, err := img.ConfigName()
	if err != nil {
		return err
	}
	blobs[BlobPath(name)] = config
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		if err := addLayer(blobs, l); err != nil {
			return err
		}
	}
	return nil
}

func addLayer(blobs map[string][]byte, l v1.Layer) error {
	digest, err := l.Digest()
	if err != nil {
		return err
	}
	r, err := l.Compressed()
	if err != nil {
		return err
	}
	defer r.Close()
	blobs[BlobPath(digest)], err = io.ReadAll(r)
	return err
}

// BlobPath is where a blob is in an OCI layout.
func BlobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// WriteLayout writes an OCI archive of an index and blobs, which are by their [BlobPath].
func WriteLayout(w io.Writer, index []byte, blobs map[string][]byte) error {
	layout, err := json.Marshal(map[string]string{"imageLayoutVersion": "1.0.0"})
	if err != nil {
		return fmt.Errorf("encode the archive's version: %w", err)
	}
	files := maps.Clone(blobs)
	files["index.json"], files["oci-layout"] = index, layout
	if err := writeFiles(w, files); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// writeFiles writes the files sorted by path, each folder before what it holds.
func writeFiles(w io.Writer, files map[string][]byte) error {
	t := tar.NewWriter(w)
	epoch := time.Unix(0, 0).UTC()
	folders := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for i := range name {
			dir := name[:i+1]
			if !strings.HasSuffix(dir, "/") || folders[dir] {
				continue
			}
			folders[dir] = true
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: epoch}); err != nil {
				return err
			}
		}
		if err := writeFile(t, name, 0o644, epoch, files[name]); err != nil {
			return err
		}
	}
	return t.Close()
}

// WriteFile is Write into a file, which appears only when it is complete.
func WriteFile(name string, images ...Image) (digests []v1.Hash, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".partial-")
	if err != nil {
		return nil, fmt.Errorf("make the archive: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	digests, err = Write(f, images...)
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("write the archive: %w", closeErr)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return nil, fmt.Errorf("make the archive readable: %w", err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return nil, fmt.Errorf("keep the archive: %w", err)
	}
	return digests, nil
}
