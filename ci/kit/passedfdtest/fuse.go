package passedfdtest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// Of the FUSE protocol (linux/fuse.h): the requests that are answered, and the
// sizes of what is needed to answer them, in bytes.
const (
	fuseLookup  = 1
	fuseGetattr = 3
	fuseOpen    = 14
	fuseInit    = 26

	fuseInHeader  = 40
	fuseOutHeader = 16
	fuseAttr      = 88
	fuseEntry     = 40 + fuseAttr
	fuseAttrOut   = 16 + fuseAttr
	fuseOpenOut   = 16
	fuseInitOut   = 64
)

// Unanswered makes a file of a FUSE file system that answers nothing once the
// file is open: neither what is asked of the file nor its close. The caller
// closes the file after the test's end only, or not as the last one. release has
// the kernel give up the file system; the test's end does it too. The test is
// skipped where file systems cannot be mounted.
func Unanswered(t testing.TB) (fd int, release func()) {
	t.Helper()
	dir := t.TempDir()
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("there is no FUSE here: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", device, os.Getuid(), os.Getgid())
	if err := unix.Mount("trapeze-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(device)
		t.Skipf("file systems cannot be mounted here: %v", err)
	}
	served := make(chan struct{})
	go func() { defer close(served); serveFUSE(device) }()
	released := false
	release = func() {
		if released {
			return
		}
		released = true
		// It may be in use; without its server it is of no use.
		_ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)
		<-served
		_ = unix.Close(device)
	}
	t.Cleanup(release)
	fd = must.Get(unix.Open(filepath.Join(dir, "file"), unix.O_RDWR|unix.O_CLOEXEC, 0))(t)
	return fd, release
}

// serveFUSE serves a folder with one file until the file system is unmounted.
func serveFUSE(device int) {
	request := make([]byte, 64<<10)
	order := binary.NativeEndian
	for {
		n, err := unix.Read(device, request)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || n < fuseInHeader {
			return
		}
		operation, unique, node := order.Uint32(request[4:]), order.Uint64(request[8:]), order.Uint64(request[16:])
		var body []byte
		switch operation {
		case fuseInit:
			body = make([]byte, fuseInitOut)
			copy(body, request[fuseInHeader:fuseInHeader+8]) // the version that the kernel speaks
			order.PutUint32(body[20:], 4096)                 // max_write
		case fuseLookup:
			body = make([]byte, fuseEntry)
			order.PutUint64(body, 2)
			attributes(body[40:], 2)
		case fuseGetattr:
			if node != 1 {
				continue
			}
			body = make([]byte, fuseAttrOut)
			attributes(body[16:], node)
		case fuseOpen:
			body = make([]byte, fuseOpenOut)
		default:
			continue
		}
		answer := order.AppendUint32(nil, uint32(fuseOutHeader+len(body)))
		answer = order.AppendUint32(answer, 0)
		answer = order.AppendUint64(answer, unique)
		_, _ = unix.Write(device, append(answer, body...))
	}
}

// attributes fills in a struct fuse_attr.
func attributes(b []byte, node uint64) {
	mode := uint32(unix.S_IFREG | 0o600)
	if node == 1 {
		mode = unix.S_IFDIR | 0o700
	}
	binary.NativeEndian.PutUint64(b, node)
	binary.NativeEndian.PutUint64(b[8:], 1<<20) // size
	binary.NativeEndian.PutUint32(b[60:], mode)
	binary.NativeEndian.PutUint32(b[64:], 1) // links
}
