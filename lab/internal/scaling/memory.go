package scaling

import (
	"bufio"
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/via"
)

// Memory holds what one more of something takes, in bytes at one NIC, found by difference over
// many.
type Memory struct {
	// Of holds what was made.
	Of string `json:"of"`
	// Count is the number that was made.
	Count int `json:"count"`
	// Host and Device are Go heap: of the driver and what is above it, and of the
	// emulated NIC.
	Host   float64 `json:"host_heap_bytes"`
	Device float64 `json:"device_heap_bytes"`
	// Shared is memory outside the Go heap: DMA memory and pages of doorbells.
	Shared float64 `json:"shared_bytes"`
	// Total is the sum of these.
	Total float64 `json:"total_bytes"`
	// Files are file descriptors.
	Files float64 `json:"files"`
}

// usage of this process.
type usage struct {
	host, device, shared, files float64
}

// devicePackages are those whose allocations the device would have in it, were it
// made of hardware.
var devicePackages = []string{"/engine.", "/emulator.", "/emulator/", "/pipeline"}

// module says how functions of ours begin.
const module = "github.com/trapeze-nic/trapeze/"

// look says what this process uses now. The heap is divided by who allocated: the
// innermost function of ours on the stack that is not of this tool.
func look() (u usage, err error) {
	// Records are complete after the collection that follows their own.
	for range 3 {
		runtime.GC()
	}
	records := make([]runtime.MemProfileRecord, 1<<10)
	for {
		n, ok := runtime.MemProfile(records, false)
		if ok {
			records = records[:n]
			break
		}
		records = make([]runtime.MemProfileRecord, 2*n)
	}
	for i := range records {
		r := &records[i]
		switch size := float64(r.InUseBytes()); owner(r.Stack()) {
		case ofDevice:
			u.device += size
		case ofHost:
			u.host += size
		}
	}
	u.shared, err = resident()
	files, err2 := os.ReadDir("/proc/self/fd")
	u.files = float64(len(files))
	return u, errors.Join(err, err2)
}

type side int

const (
	ofOthers side = iota
	ofHost
	ofDevice
)

func owner(stack []uintptr) side {
	for frames := runtime.CallersFrames(stack); ; {
		f, more := frames.Next()
		if name, ok := strings.CutPrefix(f.Function, module); ok {
			name = "/" + name
			for _, p := range devicePackages {
				if strings.HasPrefix(name, p) {
					return ofDevice
				}
			}
			if strings.HasPrefix(name, "/tools/") {
				return ofOthers
			}
			return ofHost
		}
		if !more {
			return ofOthers
		}
	}
}

// resident reads RssShmem (proc(5), status), which is in KiB.
func resident() (bytes float64, err error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == "RssShmem:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return 1024 * kib, err
		}
	}
	return 0, errNoShared
}

// errNoShared: the kernel is older than Linux 4.5.
var errNoShared = errors.New("/proc/self/status does not tell RssShmem")

// per divides by how many there are of what was made at two NICs.
func per(of string, count int, before, after usage) Memory {
	n := float64(2 * count)
	m := Memory{Of: of, Count: count,
		Host: (after.host - before.host) / n, Device: (after.device - before.device) / n,
		Shared: (after.shared - before.shared) / n, Files: (after.files - before.files) / n}
	m.Total = m.Host + m.Device + m.Shared
	return m
}

// memory finds what VIs, CQs and regions take. Meanwhile every allocation of this
// process is recorded.
func (p *Plan) memory(ctx context.Context) (all []Memory, err error) {
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	for _, f := range []func(context.Context) (Memory, error){p.memoryOfVI, p.memoryOfCQ, p.memoryOfRegion} {
		m, err := f(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
		p.Progress.Step()
	}
	return all, nil
}

// change runs f between two looks.
func change(f func() error) (before, after usage, err error) {
	if before, err = look(); err != nil {
		return before, after, err
	}
	if err = f(); err != nil {
		return before, after, err
	}
	after, err = look()
	return before, after, err
}

// memoryOfVI is of VIs that are connected, with their rings. Their buffers and
// descriptors are the application's and in memory that was there before.
func (p *Plan) memoryOfVI(ctx context.Context) (m Memory, err error) {
	w, err := open(ctx, p.MostVIs, 1, 1<<10)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	n := p.MostVIs / 2
	// What is made once is made by the first.
	if err := w.grow(ctx, 1, Bytes, nil); err != nil {
		return m, err
	}
	a := via.VIAttributes{SendDepth: slots, RecvDepth: slots, MaxTransfer: Bytes}
	var keep []*via.VI
	before, after, err := change(func() error {
		for range n {
			x, err := w.a.CreateVI(ctx, a, nil, nil)
			if err != nil {
				return err
			}
			y, err := w.b.CreateVI(ctx, a, nil, nil)
			if err != nil {
				return err
			}
			if err := bench.Connect(ctx, x, y); err != nil {
				return err
			}
			keep = append(keep, x, y)
		}
		return nil
	})
	runtime.KeepAlive(keep)
	return per("VI, connected, queues of 2", n, before, after), err
}

func (p *Plan) memoryOfCQ(ctx context.Context) (m Memory, err error) {
	n := min(sharers, p.MostVIs)
	w, err := open(ctx, 2, n, 1<<10)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	var keep []*via.CQ
	before, after, err := change(func() error {
		for range n {
			for _, nic := range []*via.NIC{w.a, w.b} {
				cq, err := nic.CreateCQ(ctx, 2*slots)
				if err != nil {
					return err
				}
				keep = append(keep, cq)
			}
		}
		return nil
	})
	runtime.KeepAlive(keep)
	return per("CQ of 4 entries", n, before, after), err
}

// memoryOfRegion is of registrations of memory that is there already.
func (p *Plan) memoryOfRegion(ctx context.Context) (m Memory, err error) {
	w, err := open(ctx, 2, 1, p.MostRegions+beside)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	from, err := newBuffers(ctx, w.a, p.MostRegions)
	if err != nil {
		return m, err
	}
	to, err := newBuffers(ctx, w.b, p.MostRegions)
	if err != nil {
		return m, err
	}
	before, after, err := change(func() error {
		return errors.Join(from.grow(ctx, p.MostRegions), to.grow(ctx, p.MostRegions))
	})
	runtime.KeepAlive([]*buffers{from, to})
	return per("region", p.MostRegions, before, after), err
}
