package qtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// MSI-X (PCI 3.0, 6.8.2): an entry of the table is the message's address, 64 bits, its
// data and its mask, 32 bits each; and the bit of the control word that enables it all.
const (
	msixEntry  = 16
	msixEnable = 1 << 15
)

// How long the watcher sleeps: messages come in bursts.
const (
	shortestNap = 50 * time.Microsecond
	longestNap  = time.Millisecond
)

// interrupts passes the messages of one device on to eventfds.
type interrupts struct {
	words   *vfio.Mapping
	address uint64 // of the messages in RAM
	enabled bool
	state   *watched
}

// watched is the state that the watcher shares.
type watched struct {
	mu      sync.Mutex
	vectors map[int]vector
	running bool
	over    sync.WaitGroup
}

// vector is a message that is awaited.
type vector struct {
	word *uint32
	fd   int // our own
}

func newInterrupts(m *Machine, n int) interrupts {
	return interrupts{words: m.words, address: messagesOf(n), state: &watched{vectors: map[int]vector{}}}
}

func (d *Device) IRQ(index int) (vfio.IRQInfo, error) {
	if index < 0 || index >= irqs {
		return vfio.IRQInfo{}, d.fail("describe interrupt of", fmt.Errorf("%w %d", vfio.ErrNoSuchIRQ, index))
	}
	if d.isClosed() {
		return vfio.IRQInfo{}, d.fail("describe interrupt of", vfio.ErrClosed)
	}
	i := vfio.IRQInfo{Index: index}
	if index == vfio.IRQMSIX && d.msix != nil {
		i.Count, i.Flags = d.msix.Vectors, vfio.IRQEventfd
	}
	return i, nil
}

func (d *Device) SetIRQs(index, start int, eventfds []int) error {
	info, err := d.IRQ(index)
	if err != nil {
		return err
	}
	return d.change("set interrupts of", func() error {
		if start < 0 || start > info.Count || len(eventfds) > info.Count-start {
			return fmt.Errorf("%w: vectors %d to %d, there are %d", vfio.ErrNoSuchIRQ, start, start+len(eventfds)-1, info.Count)
		}
		own, err := duplicates(eventfds)
		if err != nil || len(own) == 0 {
			return err
		}
		return d.connect(start, own)
	})
}

// duplicates returns descriptors of our own: the caller may close his.
func duplicates(fds []int) (own []int, err error) {
	for _, fd := range fds {
		if fd >= 0 {
			if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				closeAll(own)
				return nil, os.NewSyscallError("fcntl", err)
			}
		}
		own = append(own, fd)
	}
	return own, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// connect has vectors from start on signal fds, which it takes over.
func (d *Device) connect(start int, fds []int) error {
	for i, fd := range fds {
		n := start + i
		word, err := d.interrupts.words.Register32(d.interrupts.address + 4*uint64(n))
		if err != nil {
			closeAll(fds[i:])
			return err
		}
		d.interrupts.state.set(n, vector{word, fd})
		entry := d.msixEntry(n)
		if fd >= 0 {
			err = errors.Join(d.m.write("writeq", entry, window+4*uint64(n)), d.m.write("writeq", entry+8, 1))
		} else {
			err = d.m.write("writel", entry+12, 1)
		}
		if err != nil {
			closeAll(fds[i+1:])
			return err
		}
	}
	if d.interrupts.enabled {
		return nil
	}
	d.interrupts.enabled = true
	return d.m.write("writew", function(d.number)+d.msixControl, msixEnable)
}

func (d *Device) DisableIRQs(index int) error {
	if _, err := d.IRQ(index); err != nil {
		return err
	}
	return d.change("disable interrupts of", func() (err error) {
		if index != vfio.IRQMSIX || d.msix == nil {
			return nil
		}
		for n := range d.interrupts.state.disconnect() {
			err = errors.Join(err, d.m.write("writel", d.msixEntry(n)+12, 1))
		}
		d.interrupts.enabled = false
		return errors.Join(err, d.m.write("writew", function(d.number)+d.msixControl, 0))
	})
}

// msixEntry is where the entry of a vector is in the table.
func (d *Device) msixEntry(n int) uint64 {
	return d.bars[d.msix.TableBAR].address + uint64(d.msix.TableOffset) + msixEntry*uint64(n)
}

// disconnect is for a device that is being reset, which forgets its vectors.
func (i *interrupts) disconnect() {
	i.state.disconnect()
	i.enabled = false
}

// close ends the watcher.
func (i *interrupts) close() {
	i.state.disconnect()
	i.state.over.Wait()
}

// set connects vector n, or disconnects it if v has no descriptor.
func (w *watched) set(n int, v vector) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.vectors[n]; ok {
		_ = unix.Close(old.fd)
		delete(w.vectors, n)
	}
	if v.fd < 0 {
		return
	}
	atomic.StoreUint32(v.word, 0)
	w.vectors[n] = v
	if !w.running {
		w.running = true
		w.over.Go(w.watch)
	}
}

// disconnect disconnects all vectors and returns which were connected.
func (w *watched) disconnect() map[int]vector {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.vectors
	for _, v := range old {
		_ = unix.Close(v.fd)
	}
	w.vectors = map[int]vector{}
	return old
}

// watch signals the eventfds of messages that have come, while vectors are connected.
func (w *watched) watch() {
	for nap := shortestNap; ; time.Sleep(nap) {
		nap = min(2*nap, longestNap)
		w.mu.Lock()
		if len(w.vectors) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		for _, v := range w.vectors {
			if atomic.LoadUint32(v.word) != 0 && atomic.SwapUint32(v.word, 0) != 0 {
				nap = shortestNap
				signal(v.fd)
			}
		}
		w.mu.Unlock()
	}
}

// signal adds one to an eventfd. One that is full is signalled already.
func signal(fd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(fd, one[:])
}
