package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats register themselves
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// formats are those of packages. The two have different names for headers and for others' libraries.
// The provider calls libfabric's functions of 1.17, whatever the build machine has.
var formats = map[string]struct{ headers, headersSection, libc, exactly, libfabric string }{
	"deb": {"libvipl-dev", "libdevel", "libc6 (>= %s)", "libvipl1 (= %s)", "libfabric1 (>= 1.17)"},
	"rpm": {"libvipl-devel", "devel", "glibc >= %s", "libvipl1 = %s-1", "libfabric >= 1.17"},
}

const (
	// provider is the package of the provider of libfabric.
	provider   = "libfabric-trapeze"
	maintainer = "Trapeze maintainers <maintainers@trapeze.invalid>"
)

// content has files that a package installs: those of a folder that looks like the root.
type content struct {
	root  string
	wants func(path string) bool // nil: all
}

// packages makes all packages for an architecture, in all formats.
func (r *release) packages(arch string) error {
	if err := r.stage(arch); err != nil {
		return err
	}
	for format := range formats {
		if err := r.packagesOf(arch, format); err != nil {
			return err
		}
	}
	return nil
}

// programRoot is a root with one program, its licence, and what the package has besides.
func (r *release) programRoot(arch, name string) string {
	return filepath.Join(r.build, arch, "root-"+name)
}

// hostFiles are installed for the host that runs NICs, by their names in this repository.
var hostFiles = map[string]string{
	"kmod-notes/examples/trapeze-emulate.service": "usr/lib/systemd/system/trapeze-emulate.service",
	"kmod-notes/examples/trapeze-emulate.socket":  "usr/lib/systemd/system/trapeze-emulate.socket",
	"kmod-notes/examples/trapeze-agent.service":   "usr/lib/systemd/system/trapeze-agent.service",
	"kmod-notes/examples/trapeze-agent.socket":    "usr/lib/systemd/system/trapeze-agent.socket",
	"examples/agent.toml":                         "usr/share/doc/trapeze/examples/agent.toml",
	"kmod-notes/examples/trapeze-metrics.service": "usr/lib/systemd/system/trapeze-metrics.service",
	"docs/alerts.yml":                             "usr/share/doc/trapeze/examples/alerts.yml",
	"firmware-loader/internal/images/c/trapeze.h": "usr/include/trapeze.h",
	"kmod-notes/examples/trapeze-bind@.service":   "usr/lib/systemd/system/trapeze-bind@.service",
	"kmod-notes/examples/60-trapeze-nodes.rules":  "usr/share/doc/trapeze/examples/60-trapeze-nodes.rules",
	"kmod-notes/examples/trapeze-limits.conf":     "usr/share/doc/trapeze/examples/trapeze-limits.conf",
	"ci/release/files/60-trapeze.rules":           "usr/lib/udev/rules.d/60-trapeze.rules",
	"descriptors/trapeze.lua":                     "usr/share/trapeze/trapeze.lua",
	"ci/release/files/cdi.json":                   "etc/cdi/trapeze.json",
}

// stage makes the roots of the packages.
func (r *release) stage(arch string) error {
	for _, name := range programs {
		if err := copyFile(filepath.Join(r.programRoot(arch, name), "usr/bin", name), r.program(arch, name), 0o755); err != nil {
			return err
		}
	}
	for from, to := range hostFiles {
		text, err := os.ReadFile(filepath.Join(r.source, from))
		if err != nil {
			return err
		}
		// The examples are for a program that "go install" has put where a package must not.
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
		text = bytes.ReplaceAll(text, []byte("# /etc/systemd/system/"), []byte("# /usr/lib/systemd/system/"))
		if err := writeFile(filepath.Join(r.programRoot(arch, "trapeze"), to), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// formal is the root of what a package has by the rules of its format: the licence, and for Debian
// what changed (Debian Policy 12.5 and 12.7), and why some of lintian's errors are none.
func (r *release) formal(name, format string) (root string, err error) {
	root = filepath.Join(r.build, format, name)
	documents, licence := filepath.Join(root, "usr/share/doc", name), "LICENSE"
	if format == "deb" {
		licence = "ci/release/files/copyright"
		text, err := os.ReadFile(filepath.Join(r.source, "CHANGELOG.md"))
		if err = cmp.Or(err, writePacked(filepath.Join(documents, "changelog.gz"), r.changes(name, string(text))),
			copyFile(filepath.Join(root, "usr/share/lintian/overrides", name), filepath.Join(r.source, "ci/release/files/lintian-overrides"), 0o644)); err != nil {
			return "", err
		}
	}
	return root, copyFile(filepath.Join(documents, "copyright"), filepath.Join(r.source, licence), 0o644)
}

// changes turns the newest section of the changelog into one of Debian.
func (r *release) changes(name, changelog string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s (%s) unstable; urgency=medium\n\n", name, r.version)
	_, sections, _ := strings.Cut(changelog, "\n## ")
	newest, _, _ := strings.Cut(sections, "\n## ")
	for line := range strings.Lines(newest) {
		if item, begins := strings.CutPrefix(line, "- "); begins {
			out.WriteString("  * " + item)
		} else if strings.HasPrefix(line, "  ") {
			out.WriteString("  " + line)
		}
	}
	fmt.Fprintf(&out, "\n -- %s  %s\n", maintainer, r.date.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	return out.Bytes()
}

func (r *release) packagesOf(arch, format string) error {
	f := formats[format]
	library := r.library(arch, format)
	folder := filepath.Join(library, libraryFolders(arch)[format])
	libc, err := libcVersion(filepath.Join(folder, "libvipl.so.1"))
	fabricLibc, ferr := libcVersion(filepath.Join(folder, "libfabric/libtrapeze-fi.so"))
	if err = cmp.Or(err, ferr); err != nil {
		return err
	}
	shared := func(path string) bool { return strings.Contains(path, "/libvipl.so.1") }
	fabric := func(path string) bool { return strings.Contains(path, "/libfabric/") }

	trapeze := r.described("trapeze", "net", "messages between programs without the kernel on the data path\n"+
		"A user-space driver for programmable PCI NICs, an emulated NIC, and the\ncommand that runs, loads and examines them.")
	trapeze.Depends = []string{map[string]string{"deb": "passwd", "rpm": "shadow-utils"}[format]}
	scripts := filepath.Join(r.source, "ci/release/files")
	trapeze.Scripts = nfpm.Scripts{PostInstall: filepath.Join(scripts, "postinst"),
		PreRemove: filepath.Join(scripts, "prerm"), PostRemove: filepath.Join(scripts, "postrm")}

	lab := r.described("trapeze-lab", "net", "models and measurements of programmable NICs\n"+
		"The command that measures Trapeze, computes transfers in virtual time,\nand draws them.")

	vipl := r.described("libvipl1", "libs", "C interface of the Virtual Interface Architecture\n"+
		"The library that programs in C use at run time.")
	vipl.Depends = []string{fmt.Sprintf(f.libc, libc)}
	vipl.Deb.Triggers.ActivateNoAwait = []string{"ldconfig"}

	headers := r.described(f.headers, f.headersSection, "headers of the C interface of the Virtual Interface Architecture\n"+
		"The header, and a file for pkg-config, with which programs in C are compiled.")
	headers.Depends = []string{fmt.Sprintf(f.exactly, r.version)}

	ofi := r.described(provider, "libs", "Open MPI and others over Trapeze, by libfabric\n"+
		"A provider of libfabric: programs that use libfabric run over Trapeze\nunchanged.")
	ofi.Depends = []string{fmt.Sprintf(f.libc, fabricLibc), fmt.Sprintf(f.exactly, r.version), f.libfabric}

	for _, p := range []struct {
		*nfpm.Info
		contents []content
	}{
		{trapeze, []content{{r.programRoot(arch, "trapeze"), nil}, {r.documents("trapeze"), nil}}},
		{lab, []content{{r.programRoot(arch, "trapeze-lab"), nil}, {r.documents("trapeze-lab"), nil}}},
		{vipl, []content{{library, shared}}},
		{headers, []content{{library, func(path string) bool { return !shared(path) && !fabric(path) }}}},
		{ofi, []content{{library, fabric}}},
	} {
		p.Arch = arch
		formal, err := r.formal(p.Name, format)
		if err != nil {
			return err
		}
		for _, c := range append(p.contents, content{root: formal}) {
			if err := c.add(p.Info); err != nil {
				return err
			}
		}
		if err := r.write(p.Info, format); err != nil {
			return fmt.Errorf("%s as %s: %w", p.Name, format, err)
		}
	}
	return nil
}

// described begins a package.
func (r *release) described(name, section, description string) *nfpm.Info {
	p := &nfpm.Info{Name: name, Platform: "linux", Version: r.version, VersionSchema: "none",
		Section: section, Priority: "optional", Maintainer: maintainer,
		Homepage:    "https://github.com/trapeze-nic/trapeze",
		Description: description, Vendor: "Trapeze", License: "Apache-2.0", DisableGlobbing: true, MTime: r.date}
	p.RPM.BuildHost = "localhost"
	return p
}

// ownFolder says whether a folder is to go with the package. RPM leaves others to the packages that own them.
func ownFolder(path string) bool {
	return path == "etc/cdi" || path == "usr/share/trapeze" || strings.HasPrefix(path, "usr/share/doc/") || strings.HasSuffix(path, "/libfabric")
}

// add lists the files of a root in a package. Files below /etc are those of the administrator.
func (c content) add(p *nfpm.Info) error {
	return filepath.WalkDir(c.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(c.root, path)
		if err != nil || d.IsDir() && !ownFolder(inside) {
			return err
		}
		if d.IsDir() {
			inside += "/"
		}
		again := func(f *files.Content) bool { return d.IsDir() && f.Destination == "/"+inside } // in another root
		if c.wants != nil && !c.wants(inside) || slices.ContainsFunc(p.Contents, again) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := &files.Content{Source: path, Destination: "/" + inside, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: info.Mode().Perm(), MTime: p.MTime}}
		switch {
		case d.IsDir():
			f.Source, f.Type, f.FileInfo.Mode = "", files.TypeDir, 0o755
		case info.Mode()&fs.ModeSymlink != 0:
			f.Type = files.TypeSymlink
			if f.Source, err = os.Readlink(path); err != nil {
				return err
			}
		case strings.HasPrefix(inside, "etc/"):
			f.Type = files.TypeConfigNoReplace
		}
		p.Contents = append(p.Contents, f)
		return nil
	})
}

// write makes a package in a format, under the name that the format has for it.
func (r *release) write(p *nfpm.Info, format string) (err error) {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if len(p.Contents) == 0 {
		return errors.New("it is empty")
	}
	p = nfpm.WithDefaults(p)
	if err := nfpm.PrepareForPackager(p, format); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.output, packager.ConventionalFileName(p)))
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, file.Close()) }()
	return packager.Package(p, file)
}

func copyFile(to, from string, mode fs.FileMode) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, b, mode)
}
