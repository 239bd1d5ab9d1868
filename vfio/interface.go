package vfio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
)

// interfaceOption is the option of an address that opens one of several interfaces of a function,
// as in pci:0000:03:00.0?interface=1. Interfaces of a function are opened one by one, also by
// different parts of a program. Each is a Device with a part of the bus addresses and of the
// interrupt vectors.
const interfaceOption = "interface"

// maxInterfaces is the largest number of interfaces of a function.
const maxInterfaces = 8

// Interface returns which interface of a function a device is, from 0; 0 for a whole function.
func Interface(d Device) int {
	if p, ok := d.(*part); ok {
		return p.number
	}
	return 0
}

// FirstVector returns the vector of the function that is vector 0 of a device.
func FirstVector(d Device) int {
	p, ok := d.(*part)
	if !ok {
		return 0
	}
	p.function.mu.Lock()
	defer p.function.mu.Unlock()
	return p.base
}

// functions are those of which interfaces are open, by address.
var functions = struct {
	sync.Mutex
	m map[string]*function
}{m: map[string]*function{}}

// function is a device that several interfaces share.
type function struct {
	Device
	address string
	done    chan struct{} // ends the goroutine that passes alerts on
	ended   sync.WaitGroup

	mu      sync.Mutex
	parts   []*part
	vectors []int // eventfds of MSI-X, -1 for none
}

// part is an interface of a function.
type part struct {
	function *function
	number   int
	address  string
	alerts   chan error
	// Its vectors are those of the function from base to base+count. function.mu guards what follows.
	base, count int
	closed      bool
}

// openInterface opens the interface that an address names.
func openInterface(ctx context.Context, a Address, open func(context.Context, Address) (Device, error)) (Device, error) {
	text := a.Options.Get(interfaceOption)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= maxInterfaces {
		return nil, &Error{Op: "open", Device: a.text, Err: fmt.Errorf("%w: interface is %q, want 0 to %d", ErrBadAddress, text, maxInterfaces-1)}
	}
	whole := a
	whole.Options = url.Values{}
	for k, v := range a.Options {
		if k != interfaceOption {
			whole.Options[k] = v
		}
	}
	whole.text = a.Scheme + ":" + a.Path
	if len(whole.Options) > 0 {
		whole.text += "?" + whole.Options.Encode()
	}
	functions.Lock()
	defer functions.Unlock()
	f := functions.m[whole.text]
	if f == nil {
		d, err := open(ctx, whole)
		if err != nil {
			return nil, err
		}
		f = &function{Device: d, address: whole.text, done: make(chan struct{})}
		f.passAlerts()
		functions.m[whole.text] = f
	}
	return f.add(n, a.text)
}

// add opens interface n.
func (f *function) add(n int, address string) (Device, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.parts, func(p *part) bool { return p.number == n }) {
		return nil, &Error{Op: "open", Device: address, Err: ErrInUse, Hint: "this program has opened the interface before"}
	}
	p := &part{function: f, number: n, address: address, alerts: make(chan error, 1)}
	f.parts = append(f.parts, p)
	return p, nil
}

// passAlerts gives each alert to all interfaces.
func (f *function) passAlerts() {
	a, ok := f.Device.(Alerter)
	if !ok {
		return
	}
	f.ended.Go(func() {
		for {
			select {
			case <-f.done:
				return
			case err, ok := <-a.Alerts():
				if !ok {
					return
				}
				f.mu.Lock()
				for _, p := range f.parts {
					select {
					case p.alerts <- err:
					default: // it has a reason to end already
					}
				}
				f.mu.Unlock()
			}
		}
	})
}

// do runs g unless the interface is closed.
func (p *part) do(g func() error) error {
	p.function.mu.Lock()
	closed := p.closed
	p.function.mu.Unlock()
	if closed {
		return &Error{Op: "use", Device: p.address, Err: ErrClosed}
	}
	return g()
}

// shared fails if other interfaces of the function are open.
func (p *part) shared(op string) error {
	p.function.mu.Lock()
	defer p.function.mu.Unlock()
	if len(p.function.parts) > 1 {
		return &Error{Op: op, Device: p.address, Err: ErrInUse, Hint: "close the other interfaces of the function first"}
	}
	return nil
}

func (p *part) Info() Info {
	i := p.function.Info()
	i.Address = p.address
	return i
}

func (p *part) Region(index int) (r RegionInfo, err error) {
	err = p.do(func() error { r, err = p.function.Region(index); return err })
	return r, err
}

func (p *part) ReadRegion(index int, offset uint64, b []byte) error {
	return p.do(func() error { return p.function.ReadRegion(index, offset, b) })
}

// WriteRegion clears no bit of the command register that another interface needs.
func (p *part) WriteRegion(index int, offset uint64, b []byte) error {
	return p.do(func() error {
		if index == RegionConfig && offset == ConfigCommand && len(b) == 2 {
			var now [2]byte
			if err := p.function.ReadRegion(index, offset, now[:]); err != nil {
				return err
			}
			if binary.LittleEndian.Uint16(now[:])&^binary.LittleEndian.Uint16(b)&(CommandMemory|CommandBusMaster) != 0 {
				if err := p.shared("clear the command register of"); err != nil {
					return err
				}
			}
		}
		return p.function.WriteRegion(index, offset, b)
	})
}

func (p *part) MapRegion(index int, offset, size uint64) (m *Mapping, err error) {
	err = p.do(func() error { m, err = p.function.MapRegion(index, offset, size); return err })
	return m, err
}

func (p *part) MapDMA(mem *Memory, iova uint64, flags DMAFlags) error {
	return p.do(func() error { return p.function.MapDMA(mem, iova, flags) })
}

func (p *part) UnmapDMA(iova, size uint64) error {
	return p.do(func() error { return p.function.UnmapDMA(iova, size) })
}

// IOVARanges returns a part of each range, so that interfaces do not choose the same addresses.
func (p *part) IOVARanges() (ranges []IOVARange, err error) {
	err = p.do(func() error {
		ranges, err = p.function.IOVARanges()
		ranges = DivideIOVAs(ranges, p.number, maxInterfaces, uint64(os.Getpagesize()))
		return err
	})
	return ranges, err
}

// Reset resets the function, if no other interface of it is open.
func (p *part) Reset(ctx context.Context) error {
	return p.do(func() error {
		if err := p.shared("reset"); err != nil {
			return err
		}
		return p.function.Reset(ctx)
	})
}

func (p *part) Poll() bool {
	d, ok := p.function.Device.(Poller)
	return ok && d.Poll()
}

func (p *part) Unguarded() bool {
	d, ok := p.function.Device.(Physical)
	return ok && d.Unguarded()
}

func (p *part) PhysicalAddress(m *Memory) (uint64, error) {
	if d, ok := p.function.Device.(Physical); ok {
		return d.PhysicalAddress(m)
	}
	return 0, &Error{Op: "find memory of", Device: p.address, Err: ErrNotSupported}
}

func (p *part) Alerts() <-chan error { return p.alerts }

// Close closes the function with its last interface.
func (p *part) Close() error {
	err := p.DisableIRQs(IRQMSIX)
	if errors.Is(err, ErrClosed) {
		return nil
	}
	functions.Lock()
	defer functions.Unlock()
	f := p.function
	f.mu.Lock()
	p.closed = true
	f.parts = slices.DeleteFunc(f.parts, func(other *part) bool { return other == p })
	last := len(f.parts) == 0
	f.mu.Unlock()
	if !last {
		return err
	}
	delete(functions.m, f.address)
	close(f.done)
	f.ended.Wait()
	return errors.Join(err, f.Device.Close())
}
