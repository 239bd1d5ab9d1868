package guest

import (
	"errors"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestPhysical: without an IOMMU bus addresses are physical, memory comes from
// huge pages, and nothing else is accepted.
func TestPhysical(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	small := must.Get(vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	defer small.Close()
	if backend() != "noiommu" {
		should.Refuse(e.PhysicalAddress(small))(t, vfio.ErrNotSupported, "physical address behind an IOMMU")
		return
	}
	if _, err := e.PhysicalAddress(small); !errors.Is(err, vfio.ErrNotSupported) || !strings.Contains(err.Error(), "huge") {
		t.Errorf("physical address of a normal page: %v", err)
	} else {
		t.Log(err)
	}
	mem, iova := e.alloc(4096)
	t.Logf("%d bytes of huge pages at physical address %#x", mem.Size(), iova)
	wrong := must.Get(vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeRequire}))(t)
	defer wrong.Close()
	if err := e.MapDMA(wrong, iova+1<<21, vfio.DMARead); err == nil {
		// That may be where it is.
		should.Give(e.PhysicalAddress(wrong))(t, iova+1<<21, "mapped at what")
	} else if !errors.Is(err, vfio.ErrIOVARange) {
		t.Errorf("an address of our own choice: %v", err)
	} else {
		t.Log(err)
	}
}
