package hostpcitest

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// Kernel reacts to writes to the sysfs of a Tree as Linux does.
type Kernel struct {
	tree *Tree
	// Natural is the driver that the kernel picks for a function.
	Natural map[string]string
	// Fail makes writes to a file, such as "drivers_probe", fail.
	Fail map[string]error
	// Ignore makes writes to a file have no effect.
	Ignore map[string]bool
	// Block makes writes to a file wait until it is closed.
	Block map[string]chan struct{}

	mu     sync.Mutex
	writes []string
}

// Kernel makes the kernel of a host.
func (t *Tree) Kernel(natural map[string]string) *Kernel {
	return &Kernel{tree: t, Natural: natural, Fail: map[string]error{}, Ignore: map[string]bool{}, Block: map[string]chan struct{}{}}
}

// Writes lists what was written, as shell commands without the root.
func (k *Kernel) Writes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.writes...)
}

// Write serves as hostpci.Options.Write.
func (k *Kernel) Write(name, value string) error {
	relative, err := filepath.Rel(string(k.tree.Root()), name)
	if err != nil {
		return err
	}
	if blocked := k.Block[filepath.Base(name)]; blocked != nil {
		<-blocked
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes = append(k.writes, hostpci.Write{Path: "/" + relative, Value: value}.String())
	base := filepath.Base(name)
	if err := k.Fail[base]; err != nil {
		return err
	}
	if k.Ignore[base] {
		return nil
	}
	switch {
	case base == "driver_override":
		return k.override(strings.TrimSuffix(relative, "/"+base), value)
	case strings.HasSuffix(relative, "/driver/unbind"):
		return k.unbind(value)
	case relative == "sys/bus/pci/drivers_probe":
		return k.probe(value)
	case base == "bind":
		return k.bind(value, filepath.Base(filepath.Dir(relative)))
	}
	return fmt.Errorf("%s: %w", relative, syscall.ENOENT)
}

func (k *Kernel) override(dir, value string) error {
	if value == "\n" {
		value = "(null)"
	}
	k.tree.File(dir+"/driver_override", value+"\n")
	return nil
}

func (k *Kernel) driver(address string) string {
	now, err := k.tree.Root().Link(Dir(address) + "/driver")
	should.OK(k.tree.tb, err)
	return now
}

func (k *Kernel) unbind(address string) error {
	if k.driver(address) == "" {
		return syscall.ENODEV
	}
	k.tree.Remove(Dir(address) + "/driver")
	return nil
}

func (k *Kernel) probe(address string) error {
	if k.driver(address) != "" {
		return nil
	}
	driver := k.Natural[address]
	if s := k.tree.Root().Optional(Dir(address) + "/driver_override"); s != "(null)" {
		driver = s
	}
	if driver == "" || !k.tree.Root().Exists("sys/bus/pci/drivers/"+driver) {
		return nil
	}
	return k.bind(address, driver)
}

func (k *Kernel) bind(address, driver string) error {
	s := k.tree.Root().Optional(Dir(address) + "/driver_override")
	if k.driver(address) != "" || s != "(null)" && s != driver {
		return syscall.ENODEV
	}
	unsafe := k.tree.Root().Optional("sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y"
	if hostpci.IsVFIO(driver) && !unsafe && !k.tree.Root().Exists(Dir(address)+"/iommu_group") {
		return syscall.EINVAL
	}
	k.tree.Bind(address, driver)
	return nil
}
