package doctor

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// names of what must be there.
const (
	fabricLibrary  = "libfabric.so.1"
	fabricProvider = "libtrapeze-fi.so"
	viplLibrary    = "libvipl.so.1"
)

// machines are those of libraries that a program of this architecture can load.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// Fabric says whether programs that use libfabric find the provider of Trapeze and what it needs, on the host below root and with
// an environment as os.Getenv has it.
func Fabric(root hostpci.Root, env func(string) string) Report {
	c := fabricChecks{root: string(root), env: env}
	return around(
		named("libfabric", c.found(fabricLibrary, "fi_getinfo", c.folders(), "programs cannot use libfabric", "apt-get install libfabric1")),
		named("provider", c.found(fabricProvider, "fi_prov_ini", c.providers(), "libfabric does not list trapeze",
			"install the package libfabric-trapeze, or make -C fabric install", "or set FI_PROVIDER_PATH to the folder that has it")),
		named("libvipl", c.found(viplLibrary, "VipCQDone", c.folders(), "the provider can open no domain", "make -C vipl install")),
		named("filter", c.filter()),
		named("device", c.device()),
	)
}

// around is a report on what is around NICs.
func around(findings ...Finding) Report {
	return Report{CouldStart: worst(findings) < Error, Host: findings, Functions: []FunctionReport{}}
}

type fabricChecks struct {
	root string
	env  func(string) string
}

// folders are where the dynamic linker looks for libraries (ld.so(8)), as far as files tell.
func (c fabricChecks) folders() []string {
	list := filepath.SplitList(c.env("LD_LIBRARY_PATH"))
	files, _ := filepath.Glob(filepath.Join(c.root, "etc/ld.so.conf.d/*.conf"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				list = append(list, line)
			}
		}
	}
	for _, usual := range []string{"/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"} {
		if !slices.Contains(list, usual) {
			list = append(list, usual)
		}
	}
	return list
}

// fits says what keeps a library from being used, nil if nothing does.
func (c fabricChecks) fits(path, symbol string) error {
	f, err := elf.Open(filepath.Join(c.root, path))
	if err != nil {
		return err
	}
	defer f.Close()
	if want := machines[runtime.GOARCH]; f.Machine != want {
		return fmt.Errorf("it is for %v, not for %v", f.Machine, want)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == symbol && s.Section != elf.SHN_UNDEF }) {
		return fmt.Errorf("it has no %s", symbol)
	}
	return nil
}

// find looks for a library in folders. With an error comes the last one that could not be used.
func (c fabricChecks) find(folders []string, name, symbol string) (path string, err error) {
	err = fs.ErrNotExist
	for _, dir := range folders {
		p := filepath.Join(dir, name)
		switch e := c.fits(p, symbol); {
		case e == nil:
			return p, nil
		case !errors.Is(e, fs.ErrNotExist):
			path, err = p, e
		}
	}
	return path, err
}

// found is the finding about a library that is to be in one of some folders.
func (c fabricChecks) found(name, symbol string, folders []string, why string, fix ...string) Finding {
	path, err := c.find(folders, name, symbol)
	switch {
	case err == nil:
		return fine("%s", path)
	case errors.Is(err, fs.ErrNotExist):
		return found(Error, fmt.Sprintf("%s is in none of %s", name, strings.Join(folders, ", ")), why, fix...)
	}
	return found(Error, fmt.Sprintf("%s cannot be used: %v", path, err), why, fix...)
}

// providers are the folders where libfabric looks (fi_provider(7)): those of FI_PROVIDER_PATH if it
// is set, else one beside libfabric.
func (c fabricChecks) providers() (folders []string) {
	for _, p := range filepath.SplitList(c.env("FI_PROVIDER_PATH")) {
		folders = append(folders, strings.TrimPrefix(p, "+"))
	}
	if len(folders) > 0 {
		return folders
	}
	for _, dir := range c.folders() {
		folders = append(folders, filepath.Join(dir, "libfabric"))
	}
	return folders
}

// filter looks at FI_PROVIDER, which names the providers that libfabric may use.
func (c fabricChecks) filter() Finding {
	value := c.env("FI_PROVIDER")
	names, excludes := strings.CutPrefix(value, "^")
	listed := slices.ContainsFunc(strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ';' }),
		func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), "trapeze") })
	if value != "" && listed == excludes {
		return found(Error, "FI_PROVIDER="+value+" leaves trapeze out", "libfabric does not list it", "unset FI_PROVIDER", "export FI_PROVIDER='trapeze;ofi_rxm'")
	}
	return fine("FI_PROVIDER leaves trapeze in")
}

// device looks at the address of the NIC.
func (c fabricChecks) device() Finding {
	value := c.env("FI_TRAPEZE_DEVICE")
	if value == "" {
		return fine("FI_TRAPEZE_DEVICE is not set: programs of one user on this host reach each other")
	}
	if !strings.Contains(value, ":") {
		return found(Note, "FI_TRAPEZE_DEVICE="+value+" is a name, which TRAPEZE_VIPL or /etc/trapeze/vipl.conf explains", "it was not looked up")
	}
	a, err := vfio.ParseAddress(value)
	if err == nil && (a.Scheme == emulator.Scheme || a.Scheme == emulator.EthernetScheme) {
		err = emulator.CheckAddress(a)
	}
	if err != nil {
		return found(Error, fmt.Sprintf("FI_TRAPEZE_DEVICE: %v", err), "no domain can be opened", "see docs/addresses.md")
	}
	return fine("%s", value)
}
