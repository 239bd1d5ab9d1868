package doctor

import (
	"bufio"
	"compress/gzip"
	"io"
	"os"
	"path"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// kernelConfig has the options that a kernel was built with; nil if it does not
// tell.
type kernelConfig map[string]string

// maxConfig bounds how much of a configuration is read: they have 300 kB.
const maxConfig = 16 << 20

// readKernelConfig reads what the running kernel, or its package, says of it.
func readKernelConfig(r hostpci.Root, release string) kernelConfig {
	if f, err := os.Open(r.Path("proc/config.gz")); err == nil {
		defer f.Close()
		if text, err := gzip.NewReader(f); err == nil {
			return parseKernelConfig(text)
		}
	}
	if release == "" || strings.Contains(release, "/") {
		return nil
	}
	for _, name := range []string{"boot/config-" + release, "lib/modules/" + release + "/config"} {
		if f, err := os.Open(r.Path(name)); err == nil {
			defer f.Close()
			return parseKernelConfig(f)
		}
	}
	return nil
}

// parseKernelConfig reads lines of CONFIG_NAME=value. Options that are not set
// are missing. A text that breaks off counts for nothing.
func parseKernelConfig(text io.Reader) kernelConfig {
	c := kernelConfig{}
	lines := bufio.NewScanner(io.LimitReader(text, maxConfig))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && strings.HasPrefix(name, "CONFIG_") {
			c[name] = value
		}
	}
	if lines.Err() != nil || len(c) == 0 {
		return nil
	}
	return c
}

// lacks says that the kernel was built without an option.
func (c kernelConfig) lacks(option string) bool { return c != nil && c[option] == "" }

// module is a part of the kernel that may be a module.
type module struct {
	name   string // as modprobe takes it
	option string
	// sign is a file that only a kernel with that part has; empty if there is
	// none but its folder in sys/module.
	sign string
}

var (
	modVFIO    = module{"vfio", "CONFIG_VFIO", ""}
	modPCI     = module{"vfio-pci", "CONFIG_VFIO_PCI", "sys/bus/pci/drivers/vfio-pci"}
	modType1   = module{"vfio_iommu_type1", "CONFIG_VFIO_IOMMU_TYPE1", ""}
	modIOMMUFD = module{"iommufd", "CONFIG_IOMMUFD", "dev/iommu"}
)

// state of a module.
type state int

const (
	stateThere     state = iota // loaded or built in
	stateLoadable               // modprobe will do
	stateMissing                // the kernel was built without it, or it is not installed
	stateUncertain              // nothing tells
)

func (h *Host) module(m module) state {
	underscored := strings.ReplaceAll(m.name, "-", "_")
	if h.Root.Exists("sys/module/"+underscored) || m.sign != "" && h.Root.Exists(m.sign) || h.kernel[m.option] == "y" {
		return stateThere
	}
	dir := path.Join("lib/modules", h.Release)
	lists := func(file string) bool {
		for line := range strings.Lines(h.Root.Optional(path.Join(dir, file))) {
			name, _, _ := strings.Cut(line, ":")
			name = path.Base(strings.TrimSpace(name))
			if name, _, ok := strings.Cut(name, ".ko"); ok && strings.ReplaceAll(name, "-", "_") == underscored {
				return true
			}
		}
		return false
	}
	switch {
	case h.Release != "" && lists("modules.builtin"):
		return stateThere
	case h.Release != "" && lists("modules.dep"):
		return stateLoadable
	case h.kernel.lacks(m.option), h.Release != "" && h.Root.Exists(dir+"/modules.dep"):
		return stateMissing
	case h.kernel != nil: // =m, and not to be found from here, as in a container
		return stateLoadable
	}
	return stateUncertain
}
