package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"go/version"
	"os"
	"path/filepath"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// publishPrograms puts the static programs into the output.
func (r *release) publishPrograms(arch string) error {
	for _, name := range programs {
		if err := static(r.program(arch, name)); err != nil {
			return fmt.Errorf("%s for %s: %w", name, arch, err)
		}
		if err := copyFile(filepath.Join(r.output, fmt.Sprintf("%s_%s_linux_%s", name, r.version, arch)), r.program(arch, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// static fails if a program needs libraries, or a loader, to run.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return errors.New("it is linked dynamically")
		}
	}
	return nil
}

// libcVersion is the newest version of glibc that a library takes a symbol of.
func libcVersion(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return "", err
	}
	newest := ""
	for _, s := range symbols {
		// Versions of Go have the form of those of glibc.
		if number, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok && version.Compare("go"+number, "go"+newest) > 0 {
			newest = number
		}
	}
	if newest == "" {
		return "", fmt.Errorf("%s takes no symbol of glibc", filepath.Base(path))
	}
	return newest, nil
}

// bills writes the bill of materials of each program: the modules that Go's linker has recorded.
func (r *release) bills(arch string) error {
	for _, name := range programs {
		info, err := buildinfo.ReadFile(r.program(arch, name))
		if err != nil {
			return err
		}
		bom := cyclonedx.NewBOM()
		bom.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, []byte(info.Main.Path+"/"+name+"@"+r.commit+"/"+arch)).String()
		main := component(cyclonedx.ComponentTypeApplication, info.Main.Path, info.Main.Version)
		main.Name = name
		bom.Metadata = &cyclonedx.Metadata{Timestamp: r.date.Format("2006-01-02T15:04:05Z"), Component: &main}
		std := component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))
		list, needs := []cyclonedx.Component{std}, []string{std.BOMRef}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := component(cyclonedx.ComponentTypeLibrary, m.Path, m.Version)
			list, needs = append(list, c), append(needs, c.BOMRef)
		}
		bom.Components = &list
		bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &needs}}
		var out bytes.Buffer
		if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(r.output, fmt.Sprintf("%s_%s_linux_%s.cdx.json", name, r.version, arch)), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// component is a module of Go, by the name that package URLs have for it.
func component(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cyclonedx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
}

// sums writes the checksums of all artefacts, as sha256sum prints them.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.output) // sorted
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(r.output, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(b), e.Name())
	}
	return writeFile(filepath.Join(r.output, "SHA256SUMS"), []byte(out.String()), 0o644)
}
