package driver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Close gives everything back: VIs are destroyed, which tells their peers, then
// completion queues and memory; the device is reset, so that it touches no
// memory any more, before the memory is unmapped; then it is closed. It works
// in every state, also on a device that has failed or gone, and takes at most
// about three times the command timeout. A call that waits gets ErrClosed, as does every
// later call. Memory and descriptors in it must not be used any more.
//
// An error means that something could not be given back. Closing again does
// nothing; a second caller waits for the first.
func (n *NIC) Close() error {
	first := false
	n.closeOnce.Do(func() { first = true; n.shutdown() })
	if !first {
		return nil
	}
	return n.closeErr
}

func (n *NIC) shutdown() {
	n.closing.Store(true)
	close(n.done)
	// A remote device that does not answer is left: for its server that is the end.
	limit, cancel := context.WithTimeout(context.Background(), closeTimeouts*n.options.CommandTimeout)
	defer cancel()
	_ = n.bound(limit, 0, func() error {
		n.ops.Lock()
		defer n.ops.Unlock()
		n.closeErr = n.error("close", n.takeDown())
		return nil
	})
	n.goroutines.Wait()
	n.capture.End()
	if n.unshow != nil {
		n.unshow()
	}
}

// closeTimeouts is the number of command timeouts that Close may take, about.
const closeTimeouts = 3

// takeDown gives everything back. ops is held.
func (n *NIC) takeDown() error {
	n.closeDMA()
	for _, e := range n.present() {
		e.queues.close()
	}
	n.mu.Lock()
	cqs := n.cqs
	n.cqs = nil
	n.mu.Unlock()
	var errs []error
	for _, c := range cqs {
		c.close()
		errs = append(errs, c.endNotices())
	}
	if n.unanswering() {
		n.remote.GiveUp(descriptors.ErrClosed)
	}
	if n.admin != nil && n.failed() == nil {
		if err := n.destroyAll(cqs); err != nil {
			n.log.Warn("device does not close down in order, resetting it", "err", err)
			if n.remote != nil {
				n.remote.GiveUp(err) // its server resets it then
			}
		}
	}
	n.regions.clear()
	if n.admin != nil {
		n.admin.close()
	}

	if n.mastering {
		errs = append(errs, n.quiesce())
	}
	errs = append(errs, n.closeVectors())
	return errors.Join(append(errs, n.space.Close(n.unlessGone), n.bar0.close(), n.bar2.close(), n.bar4.close(), closeDevice(n.dev))...)
}

// destroyAll has the device destroy what was created, in order. It stops at the
// first command that is not answered; what the device refuses to destroy, the
// reset destroys.
func (n *NIC) destroyAll(cqs map[uint32]*CQ) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeouts*n.options.CommandTimeout)
	defer cancel()
	left := newTimeLeft(n.options.CommandTimeout)
	var list []*datasheet.Command
	for _, e := range n.present() {
		body := datasheet.EndpointBody{Endpoint: e.number}
		list = append(list, newCommand(datasheet.OpDisconnect, body), newCommand(datasheet.OpDestroyEndpoint, body))
	}
	for number := range cqs {
		list = append(list, newCommand(datasheet.OpDestroyCQ, datasheet.CQBody{CQ: number}))
	}
	for _, handle := range n.regions.handles() {
		list = append(list, newCommand(datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: handle}))
	}
	for _, cmd := range list {
		if _, err := n.executeUntil(ctx, nil, left, cmd, nil); err != nil && !isRefused(err) {
			return err
		}
	}
	return nil
}

// quiesce makes sure that the device reads and writes no memory any more.
func (n *NIC) quiesce() error {
	if errors.Is(n.failed(), ErrDeviceGone) {
		return nil
	}
	err := vfio.Quiesce(n.dev, n.options.CommandTimeout, n.reset)
	switch {
	case errors.Is(err, ErrDeviceGone):
		_ = n.fail(err)
	case err != nil:
		return fmt.Errorf("the device could not be stopped: %w", err)
	}
	return nil
}

func (n *NIC) closeVectors() error {
	if len(n.vectors) == 0 {
		return nil
	}
	err := n.unlessGone(n.dev.DisableIRQs(vfio.IRQMSIX))
	for _, v := range n.vectors {
		err = errors.Join(err, v.close())
	}
	return err
}

// closeDMA has the device decide by itself, and ends the log, because the NIC
// closes: the memory behind both is about to go.
func (n *NIC) closeDMA() {
	n.dma.mu.Lock()
	defer n.dma.mu.Unlock()
	p := n.pump.Swap(nil)
	if p != nil {
		p.Stop()
	}
	if n.failed() == nil && (p != nil || n.dma.log.buf != nil) {
		// If this does not help, the reset does.
		_ = n.regs.write(datasheet.BlockDMA, datasheet.RegDMAControl, 0)
	}
}

// inUse has the devices of all NICs that are open.
var inUse sync.Map

// claimDevice notes that a NIC has the device, and reports whether none had it. A device that cannot be compared is not known again.
func claimDevice(dev vfio.Device) bool {
	if !reflect.TypeOf(dev).Comparable() {
		return true
	}
	_, taken := inUse.LoadOrStore(dev, true)
	return !taken
}

// closeDevice closes a device that was claimed.
func closeDevice(dev vfio.Device) error {
	err := dev.Close()
	if reflect.TypeOf(dev).Comparable() {
		inUse.Delete(dev)
	}
	return err
}
