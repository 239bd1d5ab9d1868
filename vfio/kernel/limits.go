package kernel

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"slices"

	"github.com/trapeze-nic/trapeze/vfio"
)

// unknown number of mappings that are left.
const unknown = -1

// limits are those of an address space.
type limits struct {
	ranges []vfio.IOVARange // sorted
	// page is the size that addresses and sizes are multiples of; 0 for the processor's.
	page uint64
	// available is the number of mappings still possible, or unknown.
	available int
}

// x86's message-signalled interrupts are writes to these addresses. Kernels
// before 5.4 do not tell which addresses can be mapped; 39 bits are those that every
// IOMMU that we know can translate.
const (
	messagesFirst = 0xfee00000
	messagesLast  = 0xfeefffff
	plainLast     = 1<<39 - 1
)

// parseIOMMUInfo reads what VFIO_IOMMU_GET_INFO returned.
func parseIOMMUInfo(b []byte) (limits, error) {
	l := limits{available: unknown}
	info, ok := load[iommuInfo](b)
	if !ok {
		return l, fmt.Errorf("%w: %d bytes", errBadAnswer, len(b))
	}
	if info.flags&iommuInfoPageSizes != 0 && info.pageSizes != 0 {
		l.page = 1 << bits.TrailingZeros64(info.pageSizes)
	}
	told := false
	if info.flags&iommuInfoCaps != 0 {
		err := walkCaps(b, info.capOffset, func(h capHeader, body []byte) error {
			switch h.id {
			case iommuCapIOVARange:
				list, err := rangesCap(body)
				if err != nil {
					return err
				}
				told = true
				for _, r := range list {
					if r[0] > r[1] {
						return fmt.Errorf("%w: IOVA range %#x to %#x", errBadAnswer, r[0], r[1])
					}
					l.ranges = append(l.ranges, vfio.IOVARange{First: r[0], Last: r[1]})
				}
			case iommuCapDMAAvailable:
				if len(body) < 12 {
					return fmt.Errorf("%w: the number of mappings is cut off", errBadAnswer)
				}
				l.available = int(binary.NativeEndian.Uint32(body[8:]))
			}
			return nil
		})
		if err != nil {
			return l, err
		}
	}
	if !told {
		l.ranges = []vfio.IOVARange{{First: 0, Last: messagesFirst - 1}, {First: messagesLast + 1, Last: plainLast}}
	}
	slices.SortFunc(l.ranges, byFirst)
	return l, nil
}

func byFirst(a, b vfio.IOVARange) int { return cmp.Compare(a.First, b.First) }

// granule returns what addresses and sizes of mappings are multiples of.
func (l limits) granule() uint64 { return max(l.page, uint64(os.Getpagesize())) }
