package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// unprivileged is the user and the group that programs of an image run as.
const unprivileged = "65532"

// image writes an archive with the layout of OCI's image specification: the programs and nothing else.
func (r *release) image(arch string) error {
	image, err := r.imageFor(arch)
	if err != nil {
		return err
	}
	folder := filepath.Join(r.build, arch, "image")
	at, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": r.tag()}
	if err := at.AppendImage(image, layout.WithAnnotations(name), layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch})); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.output, fmt.Sprintf("trapeze_%s_oci_%s.tar", r.version, arch)))
	if err != nil {
		return err
	}
	if err := r.archive(file, folder); err != nil {
		_ = file.Close() // its folder is removed
		return err
	}
	return file.Close()
}

// tag is the version in the characters that tags of images may have.
func (r *release) tag() string { return strings.ReplaceAll(r.version, "~", "-") }

// imageFor makes the image for an architecture.
func (r *release) imageFor(arch string) (v1.Image, error) {
	root := filepath.Join(r.build, arch, "image-root")
	for _, name := range programs {
		if err := copyFile(filepath.Join(root, "usr/bin", name), r.program(arch, name), 0o755); err != nil {
			return nil, err
		}
	}
	// Sockets and temporary files have their folders.
	for _, dir := range []string{"run/trapeze", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return nil, err
		}
		if err := os.Chmod(filepath.Join(root, dir), 0o777|fs.ModeSticky); err != nil {
			return nil, err
		}
	}
	var packed bytes.Buffer
	if err := r.archive(&packed, root); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "ci/release"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = arch, "linux", v1.Time{Time: r.date}
	config.Config = v1.Config{User: unprivileged + ":" + unprivileged, Entrypoint: []string{"/usr/bin/trapeze"},
		Env: []string{"PATH=/usr/bin"}, WorkingDir: "/tmp", Labels: map[string]string{
			"org.opencontainers.image.title": "trapeze", "org.opencontainers.image.version": r.version,
			"org.opencontainers.image.revision": r.commit, "org.opencontainers.image.licenses": "Apache-2.0"}}
	return mutate.ConfigFile(image, config)
}

// archive writes a folder as tar, in the order of names, owned by root and as old as the commit.
func (r *release) archive(to io.Writer, folder string) error {
	out := tar.NewWriter(to)
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		if h.Name, err = filepath.Rel(folder, path); err != nil {
			return err
		}
		if d.IsDir() {
			h.Name += "/"
		}
		h.Uid, h.Gid, h.Uname, h.Gname, h.Format = 0, 0, "", "", tar.FormatUSTAR
		h.ModTime, h.AccessTime, h.ChangeTime = r.date, time.Time{}, time.Time{}
		if err := out.WriteHeader(h); err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = out.Write(b)
		return err
	})
	if err != nil {
		return err
	}
	return out.Close()
}
