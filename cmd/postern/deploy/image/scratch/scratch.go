// Package scratch makes container images from scratch: no base image, one layer, in it
// static programs and nothing else, to be run by a user that is not root. It needs no
// container engine and no registry.
//
// What it writes is an OCI image layout (OCI Image Format Specification v1.1) in a tar
// archive. The names of the images stand in the index's annotations, where `ctr images
// import`, k3s, podman and `docker load` look for them.
//
// Everything is reproducible: the same Go toolchain makes of the same sources the same
// bytes, whatever the machine, the folder and the time.
package scratch

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// User that the images run as, and its group. The number is what distroless images call
// "nonroot"; a name would need an /etc/passwd, and the kubelet can prove only of a number
// that it isn't root.
const User = "65532:65532"

// Image describes an image for one or several architectures.
type Image struct {
	// Name is the reference that it is imported under, such as localhost/postern:v1.
	Name string
	// Labels are put into the configuration. Well-known keys begin with
	// org.opencontainers.image.
	Labels map[string]string
	// Created is the time of everything in the image; the zero value is 1970-01-01.
	Created time.Time
	// Platforms hold the programs, in the order of the index. At least one.
	Platforms []Platform
}

// Platform is what an image holds for one architecture of Linux.
type Platform struct {
	// Arch is the architecture as GOARCH names it.
	Arch string
	// Programs are the paths of static executables on this host by their absolute
	// path in the image.
	Programs map[string]string
	// Entrypoint is the path in the image of the program that is started.
	Entrypoint string
}

// epoch is the time of everything unless Image.Created says otherwise.
func (i Image) created() time.Time {
	if i.Created.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return i.Created.UTC().Truncate(time.Second)
}

// index makes the image's index: one manifest for each platform.
func (i Image) index() (v1.ImageIndex, error) {
	if len(i.Platforms) == 0 {
		return nil, fmt.Errorf("make image %s: it has no platform", i.Name)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range i.Platforms {
		img, err := i.platform(p)
		if err != nil {
			return nil, fmt.Errorf("make image %s for %s: %w", i.Name, p.Arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.Arch}},
		})
	}
	return index, nil
}

// platform makes the image of one architecture.
func (i Image) platform(p Platform) (v1.Image, error) {
	if _, ok := p.Programs[p.Entrypoint]; !ok {
		return nil, fmt.Errorf("its entry point %q is none of its programs", p.Entrypoint)
	}
	content, err := layerTar(p.Programs, i.created())
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compress its layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: i.created()}, CreatedBy: "from scratch"},
	})
	if err != nil {
		return nil, fmt.Errorf("add its layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read its configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.Arch, v1.Time{Time: i.created()}
	config.Config = v1.Config{User: User, Entrypoint: []string{p.Entrypoint}, WorkingDir: "/", Labels: i.Labels,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	return mutate.ConfigFile(img, config)
}

// layerTar is the layer: the programs and the folders above them, sorted by path.
func layerTar(programs map[string]string, created time.Time) ([]byte, error) {
	folders := map[string]bool{}
	for name := range programs {
		if !path.IsAbs(name) || path.Clean(name) != name {
			return nil, fmt.Errorf("%q is no clean absolute path", name)
		}
		for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755, ModTime: created}); err != nil {
			return nil, fmt.Errorf("write its layer: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		content, err := os.ReadFile(programs[name])
		if err != nil {
			return nil, fmt.Errorf("read its program: %w", err)
		}
		if err := writeFile(w, name[1:], 0o755, created, content); err != nil {
			return nil, fmt.Errorf("write its layer: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write its layer: %w", err)
	}
	return b.Bytes(), nil
}

// writeFile adds a file of root's to an archive.
func writeFile(w *tar.Writer, name string, mode int64, modified time.Time, content []byte) error {
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: modified})
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
