package kernel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// An entry of /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagemapPresent = 1 << 63
	pagemapFrame   = 1<<55 - 1
)

// pagemapBatch is the number of entries that are read at a time.
const pagemapBatch = 512

// locate returns the physical address of memory, which must be in one piece.
func (s *unguardedSpace) locate(address, size uint64) (uint64, error) {
	page := uint64(os.Getpagesize())
	var first uint64
	b := make([]byte, 8*pagemapBatch)
	for done, pages := uint64(0), size/page; done < pages; {
		n := min(pages-done, pagemapBatch)
		if err := s.readPagemap(b[:8*n], address/page+done); err != nil {
			return 0, err
		}
		for i := range n {
			frame := binary.NativeEndian.Uint64(b[8*i:])
			switch {
			case frame&pagemapPresent == 0:
				return 0, &hintedError{fmt.Errorf("page %d of the memory is not in memory: %w", done+i, unix.EFAULT), ""}
			case frame&pagemapFrame == 0:
				return 0, &hintedError{unix.EPERM, "the kernel tells physical addresses to processes with CAP_SYS_ADMIN only"}
			}
			at := frame & pagemapFrame * page
			if done+i == 0 {
				first = at
			}
			if want := first + (done+i)*page; at != want {
				return 0, &hintedError{fmt.Errorf("%w: byte %#x of the memory is at physical address %#x, not at %#x",
					vfio.ErrNotSupported, (done+i)*page, at, want),
					"without an IOMMU memory must be in one piece: ask for at most one huge page at a time"}
			}
		}
		done += n
	}
	return first, nil
}

// readPagemap fills b with entries from the given page on.
func (s *unguardedSpace) readPagemap(b []byte, page uint64) error {
	for at := 0; at < len(b); {
		n, err := s.sys.read(s.pagemap, b[at:], int64(page*8)+int64(at))
		if err != nil {
			return err
		}
		if n <= 0 || n%8 != 0 {
			return &hintedError{fmt.Errorf("%w: %d bytes of the page map", errBadAnswer, n), ""}
		}
		at += n
	}
	return nil
}

// everything is where memory can be if the kernel does not tell: 52 bits are
// the most that a supported processor has.
var everything = []vfio.IOVARange{{First: 0, Last: 1<<52 - 1}}

// systemRAM lists the physical addresses of memory, from /proc/iomem. The
// kernel hides them, as zeros, from processes without CAP_SYS_ADMIN.
func systemRAM(root hostpci.Root) []vfio.IOVARange {
	file, err := os.Open(root.Path("proc/iomem"))
	if err != nil {
		return everything
	}
	defer file.Close()
	var list []vfio.IOVARange
	for lines := bufio.NewScanner(file); lines.Scan(); {
		addresses, name, ok := strings.Cut(lines.Text(), " : ")
		if !ok || name != "System RAM" {
			continue
		}
		first, last, _ := strings.Cut(addresses, "-")
		a, err1 := strconv.ParseUint(first, 16, 64)
		b, err2 := strconv.ParseUint(last, 16, 64)
		if errors.Join(err1, err2) == nil && a < b {
			list = append(list, vfio.IOVARange{First: a, Last: b})
		}
	}
	if len(list) == 0 {
		return everything
	}
	slices.SortFunc(list, byFirst)
	return list
}
