package scratch

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// compileHello builds the test's program for an architecture in a new folder, from a copy
// of its sources in another new folder.
func compileHello(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	source, err := os.ReadFile("testdata/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"main.go": string(source), "go.mod": "module example.com/hello\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "hello")
	if err := Compile(deadline(t), Program{Dir: dir, Package: ".", Version: "v1"}, arch, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// helloImage is an image of the test's program, compiled again.
func helloImage(t *testing.T) Image {
	t.Helper()
	i := Image{Name: "localhost/hello:v1", Labels: map[string]string{"b": "2", "a": "1"}}
	for _, arch := range []string{"amd64", "arm64"} {
		i.Platforms = append(i.Platforms, Platform{
			Arch: arch, Programs: map[string]string{"/bin/hello": compileHello(t, arch)}, Entrypoint: "/bin/hello",
		})
	}
	return i
}

// TestImagesAreReproducible builds the same sources twice, in other folders, at other
// times and in another environment.
func TestImagesAreReproducible(t *testing.T) {
	var first, second bytes.Buffer
	d1, err := Write(&first, helloImage(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOFLAGS", "-gcflags=-N")
	d2, err := Write(&second, helloImage(t))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d1, d2) {
		t.Errorf("digests differ: %v and %v", d1, d2)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the archives differ")
	}
	other := helloImage(t)
	other.Created = time.Unix(1_700_000_000, 0)
	d3, err := Write(io.Discard, other)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(d1, d3) {
		t.Errorf("another time gives the same digest %v: the test doesn't see differences", d1)
	}
}

// unpack writes an archive's files into a new folder and returns their names in order.
func unpack(t *testing.T, archive []byte) (dir string, names []string) {
	t.Helper()
	dir = t.TempDir()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir, names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, 0o700)
		} else {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestArchiveIsAnOCILayout reads the archive back with the library's own reader, which
// checks every digest, size and media type.
func TestArchiveIsAnOCILayout(t *testing.T) {
	want := helloImage(t)
	want.Created = time.Unix(1_700_000_000, 0)
	var b bytes.Buffer
	digests, err := Write(&b, want)
	if err != nil {
		t.Fatal(err)
	}
	dir, names := unpack(t, b.Bytes())
	if !slices.IsSorted(names) {
		t.Errorf("the archive's files are not sorted: %v", names)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != digests[0] {
		t.Fatalf("the archive holds %+v, want the one image %v", manifest.Manifests, digests)
	}
	for _, key := range []string{annotationContainerd, annotationRefName} {
		if got := manifest.Manifests[0].Annotations[key]; got != want.Name {
			t.Errorf("annotation %s: got %q, want %q", key, got, want.Name)
		}
	}
	index, err := top.ImageIndex(digests[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	platforms, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range platforms.Manifests {
		if m.Platform == nil || m.Platform.OS != "linux" || m.Platform.Architecture != want.Platforms[i].Arch {
			t.Errorf("manifest %d is for %v, want linux/%s", i, m.Platform, want.Platforms[i].Arch)
		}
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, want, want.Platforms[i])
	}
}

func checkImage(t *testing.T, img v1.Image, want Image, p Platform) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/bin/hello"}) || c.Labels["a"] != "1" || len(c.Cmd) != 0 {
		t.Errorf("configuration of %s: %+v", p.Arch, c)
	}
	if config.OS != "linux" || config.Architecture != p.Arch || !config.Created.Equal(want.Created) {
		t.Errorf("%s says it is for %s/%s, of %v", p.Arch, config.OS, config.Architecture, config.Created)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%s has %d layers (%v), want one", p.Arch, len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	program, err := os.ReadFile(p.Programs["/bin/hello"])
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(content)
	for _, name := range []string{"bin/", "bin/hello"} {
		h, err := files.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Name != name || h.Mode != 0o755 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(want.Created) {
			t.Errorf("file of %s: got %+v, want %s of root's, executable, of %v", p.Arch, h, name, want.Created)
		}
	}
	if got, err := io.ReadAll(files); err != nil || !bytes.Equal(got, program) {
		t.Errorf("the program of %s is %d bytes (%v), want the %d that were compiled", p.Arch, len(got), err, len(program))
	}
	if _, err := files.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%s holds more than its program: %v", p.Arch, err)
	}
}

func TestCompileSetsTheVersion(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Logf("a program for Linux doesn't run on %s; that it compiles is all that is tested", runtime.GOOS)
		return
	}
	out, err := exec.CommandContext(deadline(t), compileHello(t, runtime.GOARCH)).CombinedOutput()
	if err != nil || string(out) != "hello v1\n" {
		t.Errorf("got %q, %v; want hello v1", out, err)
	}
}

func TestCompileFailureShowsTheCompiler(t *testing.T) {
	err := Compile(deadline(t), Program{Package: "./testdata/none"}, "amd64", filepath.Join(t.TempDir(), "x"))
	if err == nil || !strings.Contains(err.Error(), "testdata/none") || !strings.Contains(err.Error(), "not found") {
		t.Errorf("got %v, want the compiler's complaint", err)
	}
}

func TestWrongImagesAreRefused(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	platform := func(path, entrypoint, file string) []Platform {
		return []Platform{{Arch: "amd64", Programs: map[string]string{path: file}, Entrypoint: entrypoint}}
	}
	for name, c := range map[string]struct {
		platforms []Platform
		want      string
	}{
		"no platform":         {nil, "no platform"},
		"another entry point": {platform("/a", "/b", program), `entry point "/b"`},
		"relative path":       {platform("a", "a", program), `"a" is no clean absolute path`},
		"path with dots":      {platform("/a/../b", "/a/../b", program), "no clean absolute path"},
		"missing program":     {platform("/a", "/a", program+".none"), "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := WriteFile(filepath.Join(dir, "x.tar"), Image{Name: "localhost/x:1", Platforms: c.platforms})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "localhost/x:1") {
				t.Errorf("got %v, want an error that names the image and says %q", err, c.want)
			}
			if left, err := fs.Glob(os.DirFS(dir), "*"); err != nil || len(left) > 0 {
				t.Errorf("a failed build leaves %v (%v)", left, err)
			}
		})
	}
}
