package afxdp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// host is the network namespace that a port was opened in, and what is asked there.
type host struct {
	namespace netns.NsHandle
	netlink   *netlink.Handle
	socket    int // for ioctls
}

// netlinkTimeout is the time that the kernel may take for an answer. It waits itself while the
// interfaces of the namespace are changed.
const netlinkTimeout = 10 * time.Second

// openHost takes the namespace of the calling thread.
func openHost() (_ *host, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	h := &host{namespace: netns.None(), socket: -1}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if h.namespace, err = netns.Get(); err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	if h.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	if err = h.netlink.SetSocketTimeout(netlinkTimeout); err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	if h.socket, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return h, nil
}

func (h *host) close() {
	if h.socket >= 0 {
		_ = unix.Close(h.socket)
	}
	if h.netlink != nil {
		h.netlink.Close()
	}
	if h.namespace.IsOpen() {
		_ = h.namespace.Close()
	}
}

// do runs f on a thread that is in the namespace: where sockets are made, and programs are
// attached, is decided by the thread.
func (h *host) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	current, err := netns.Get()
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer current.Close()
	if current.Equal(h.namespace) {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if err := netns.Set(h.namespace); err != nil {
			done <- fmt.Errorf("network namespace of the port: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// find looks an interface up by its name. If there is none the error lists those that
// there are.
func (h *host) find(name string) (*netlink.LinkAttrs, error) {
	l, err := h.netlink.LinkByName(name)
	if err == nil {
		return l.Attrs(), nil
	}
	if !gone(err) {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	list, err := h.netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	names := make([]string, 0, len(list))
	for _, l := range list {
		names = append(names, l.Attrs().Name)
	}
	return nil, fmt.Errorf("%w, but: %s", errNone, strings.Join(names, ", "))
}

// look looks at an interface that was found. It fails with ethernet.ErrDeviceGone.
func (h *host) look(index int) (*netlink.LinkAttrs, error) {
	l, err := h.netlink.LinkByIndex(index)
	switch {
	case err == nil:
		return l.Attrs(), nil
	case gone(err):
		return nil, fmt.Errorf("%w: the interface is not there any more", ethernet.ErrDeviceGone)
	}
	return nil, fmt.Errorf("netlink: %w", err)
}

// gone reports whether an error of netlink says that there is no such interface.
func gone(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.As(err, &none) || errors.Is(err, unix.ENODEV)
}

// Commands of ethtool, and what is where in their structures, in words of 32 bits
// (include/uapi/linux/ethtool.h).
const (
	ethtoolSettings = 0x01 // struct ethtool_cmd
	settingsWords   = 11
	settingsSpeed   = 3 // 16 bits of the speed in Mbit/s, 8 of the duplex
	settingsHigh    = 7 // the other 16 of the speed
	unknownSpeed    = 1<<32 - 1
	fullDuplex      = 1

	ethtoolChannels  = 0x3c // struct ethtool_channels
	channelsWords    = 9
	channelsReceive  = 5
	channelsSend     = 6
	channelsCombined = 8

	ethtoolSums = 0x16 // struct ethtool_value, which says whether it computes checksums of what is sent
)

// link says how the link of an interface is.
func (h *host) link(a *netlink.LinkAttrs) ethernet.Link {
	l := ethernet.Link{Up: a.RawFlags&unix.IFF_RUNNING != 0}
	words := make([]uint32, settingsWords)
	words[0] = ethtoolSettings
	if !l.Up || ethtool(h.socket, a.Name, words) != nil {
		return l
	}
	speed := words[settingsSpeed]&0xffff | words[settingsHigh]<<16
	if speed != unknownSpeed && speed != 0xffff {
		l.Speed = int(speed)
	}
	l.FullDuplex = words[settingsSpeed]>>16&0xff == fullDuplex
	return l
}

// channels returns how many queues an interface has to receive by, and to send by; 0 if its
// driver does not say.
func (h *host) channels(name string) (receive, send int) {
	words := make([]uint32, channelsWords)
	words[0] = ethtoolChannels
	if ethtool(h.socket, name, words) != nil {
		return 0, 0
	}
	both := words[channelsCombined]
	return int(words[channelsReceive] + both), int(words[channelsSend] + both)
}

// computes reports whether checksums are left to an interface, also where its driver does
// not say.
func (h *host) computes(name string) bool {
	words := []uint32{ethtoolSums, 0}
	return ethtool(h.socket, name, words) != nil || words[1] != 0
}

// driver returns the name of the kernel's driver of an interface.
func (h *host) driver(name string) string {
	info, err := unix.IoctlGetEthtoolDrvinfo(h.socket, name)
	if err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(info.Driver[:])
}
