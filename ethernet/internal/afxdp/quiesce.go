package afxdp

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// quiesce waits until a device writes to no buffer of a socket any more that was closed
// and copied nothing: the kernel takes the queue back from it in the background, and lets
// no other socket have the queue until then (Linux, net/xdp/xsk_buff_pool.c: xp_clear_dev). So
// it is over when another socket, which copies, can be bound to the queue. It fails with
// ethernet.ErrNotStopped, also if the process has given up CAP_NET_RAW.
func (d *device) quiesce(number int) error {
	err := d.host.do(func() error {
		return d.patiently(context.Background(), func() error { return d.probe(number) })
	})
	switch {
	case err == nil, errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EINVAL):
		return nil // it is free, or there is no such queue any more
	}
	d.unstopped = true
	return fmt.Errorf("%w: queue %d: %w", ethernet.ErrNotStopped, number, err)
}

// probe binds a socket with one buffer to a queue, and closes it.
func (d *device) probe(number int) (err error) {
	const entries = 2
	page := os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(memory)) }()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket AF_XDP", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := registerUMEM(fd, memory, geometry{chunk: uint32(min(page, 4096))}); err != nil {
		return err
	}
	for _, option := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
		if err := unix.SetsockoptInt(fd, unix.SOL_XDP, option, entries); err != nil {
			return os.NewSyscallError(fmt.Sprintf("setsockopt %d", option), err)
		}
	}
	return os.NewSyscallError("bind AF_XDP", unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(d.index), QueueID: uint32(number)}))
}
