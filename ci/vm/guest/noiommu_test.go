package guest

import (
	"errors"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/vfio"
)

// TestPhysical: without an IOMMU bus addresses are physical, memory comes from
// huge pages, and nothing else is accepted.
func TestPhysical(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	small, err := vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if backend() != "noiommu" {
		if _, err := e.PhysicalAddress(small); !errors.Is(err, vfio.ErrNotSupported) {
			t.Errorf("physical address behind an IOMMU: %v", err)
		}
		return
	}
	if _, err := e.PhysicalAddress(small); !errors.Is(err, vfio.ErrNotSupported) || !strings.Contains(err.Error(), "huge") {
		t.Errorf("physical address of a normal page: %v", err)
	} else {
		t.Log(err)
	}
	mem, iova := e.alloc(4096)
	t.Logf("%d bytes of huge pages at physical address %#x", mem.Size(), iova)
	wrong, err := vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeRequire})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if err := e.MapDMA(wrong, iova+1<<21, vfio.DMARead); err == nil {
		// That may be where it is.
		if at, perr := e.PhysicalAddress(wrong); perr != nil || at != iova+1<<21 {
			t.Errorf("mapped at %#x what is at %#x", iova+1<<21, at)
		}
	} else if !errors.Is(err, vfio.ErrIOVARange) {
		t.Errorf("an address of our own choice: %v", err)
	} else {
		t.Log(err)
	}
}
