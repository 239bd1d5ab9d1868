package memfile_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/memfile"
)

// TestMap: a file is as long as it is to be, has its seals and its pages, and cannot be executed.
func TestMap(t *testing.T) {
	for _, o := range []memfile.Options{{}, {Seals: memfile.Sealed, Filled: true}, {Seals: memfile.Final}} {
		const size = 3 << 12
		fd, b, err := memfile.Map("test", size, o)
		must.OK(t, err)
		defer unix.Close(fd)
		defer unix.Munmap(b)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Size != size || len(b) != size || o.Filled && st.Blocks*512 < size {
			t.Errorf("%+v: %d bytes in %d blocks, %v", o, st.Size, st.Blocks, err)
		}
		got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		if err != nil || got&memfile.Final != o.Seals {
			t.Errorf("%+v: seals %#x, %v", o, got, err)
		}
		if got&unix.F_SEAL_EXEC != 0 { // since Linux 6.3
			if err := unix.Access(fmt.Sprintf("/proc/self/fd/%d", fd), unix.X_OK); err == nil {
				t.Errorf("%+v: it can be executed", o)
			}
		}
		if err := unix.Ftruncate(fd, 0); (err != nil) != (o.Seals != 0) {
			t.Errorf("%+v: cut off: %v", o, err)
		}
	}
	should.Refuse(memfile.Create("test", 1<<63, memfile.Options{}))(t, unix.EINVAL, "a file of 2^63 bytes")
}
