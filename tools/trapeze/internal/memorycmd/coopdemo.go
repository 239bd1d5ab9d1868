package memorycmd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// coopDemoReport is printed by demo --cooperative --json.
type coopDemoReport struct {
	Bytes    int64       `json:"bytes" help:"of the file, which is the working set"`
	Cache    int64       `json:"cache_bytes" help:"of each process"`
	Direct   bool        `json:"direct" help:"the file is read past the system's cache, with O_DIRECT"`
	Alone    *coopReads  `json:"alone,omitempty" help:"one process, whose cache misses go to the file"`
	Together *coopReads  `json:"together,omitempty" help:"with the memory of two idle ones"`
	Faults   []coopFault `json:"faults" help:"what a page takes that is not in the cache"`
	// Incomplete says why it ended before all was read.
	Incomplete string `json:"incomplete,omitempty"`
}

// coopFault has the time that a page takes from one place.
type coopFault struct {
	From string  `json:"from"`
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
}

const (
	coopProcesses = 3
	coopPage      = netmem.DefaultPage
	coopReadsEach = 3 // random reads, for each page of the file
	// coopOptions let a page travel in one frame, and need no thread for each NIC.
	coopOptions = "&mtu=9014&engine=inline"
	// coopSettle bounds the time in which processes end after an interrupt.
	coopSettle = 10 * time.Second
)

// coopSizes are the sizes where none are given.
func (f *demoFlags) coopSizes(size, memory bool) {
	if !size {
		f.Size = 48 << 20
	}
	if !memory {
		f.Memory = f.Size / 12 * 5 / coopPage * coopPage
	}
}

// runCoop reads a file that is larger than the cache of a process, first alone and then with two others.
func (x *commands) runCoop(ctx context.Context, f *demoFlags) (err error) {
	switch {
	case f.Size < 1<<20 || f.Size > 64<<30 || f.Size%coopPage != 0:
		return &option.Error{Option: "--size", Value: f.Size.String(), Allowed: "1M to 64G, in steps of 8K"}
	case f.Memory < 256<<10 || f.Memory >= f.Size:
		return &option.Error{Option: "--memory", Value: f.Memory.String(), Allowed: "256K or more, and less than --size: it is the cache of each process"}
	}
	r := coopDemoReport{Bytes: int64(f.Size), Cache: int64(f.Memory), Faults: []coopFault{}}
	err = x.coopDemo(ctx, f, &r)
	if err != nil {
		err = fmt.Errorf("demo: %w", err)
		if ctx.Err() == nil {
			return err
		}
		r.Incomplete = context.Cause(ctx).Error()
	}
	return errors.Join(err, x.Print(r, func(w io.Writer) error { return x.printCoopDemo(w, r) }))
}

func (x *commands) coopDemo(ctx context.Context, f *demoFlags, r *coopDemoReport) (err error) {
	file, digest, err := x.coopFile(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	var data *os.File
	if data, r.Direct, err = openDirect(file); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	disk, err := coopDisk(ctx, data, int64(f.Size))
	if err != nil {
		return err
	}
	devices, err := coopDevices()
	if err != nil {
		return err
	}
	return with(ctx, devices[0], func(nic *via.NIC) (err error) {
		s, err := netmem.NewServer(ctx, nic, netmem.ServerOptions{Name: "demo", Page: coopPage, File: data, ReadOnly: true, Depth: netmem.DefaultDepth})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		alone, err := x.coopReader(ctx, devices, f, digest, false)
		if alone.Reads.Count > 0 {
			r.Alone = &alone.Reads
		}
		if err != nil {
			return err
		}
		together, err := x.coopTogether(ctx, devices, f, digest)
		if together.Reads.Count > 0 {
			r.Together = &together.Reads
		}
		if err != nil {
			return err
		}
		what := "the disk"
		if !r.Direct {
			what = "the system's memory"
		}
		r.Faults = append(r.Faults,
			coopFault{"another process", together.Reads.NearP50, together.Reads.NearP99},
			coopFault{"the page server, and " + what, alone.Reads.P50, alone.Reads.P99},
			coopFault{what + ", without a network", disk.P50, disk.P99})
		return nil
	})
}

// openDirect opens a file for reading past the system's cache, if its file system can do that. Since
// Linux 6.6 tmpfs takes O_DIRECT, and reads no disk all the same.
func openDirect(name string) (file *os.File, direct bool, err error) {
	var in unix.Statfs_t
	if err := unix.Statfs(name, &in); err != nil {
		return nil, false, fmt.Errorf("ask for the file system of %s: %w", name, err)
	}
	if in.Type != unix.TMPFS_MAGIC && in.Type != unix.RAMFS_MAGIC {
		if file, err = os.OpenFile(name, os.O_RDONLY|unix.O_DIRECT, 0); !errors.Is(err, unix.EINVAL) {
			return file, true, err
		}
	}
	file, err = os.Open(name)
	return file, false, err
}

// coopFile makes a file of random pages, which is on the disk when it returns, and its digest.
func (x *commands) coopFile(ctx context.Context, f *demoFlags) (name, digest string, err error) {
	file, err := os.CreateTemp(f.Folder, "trapeze-memory-demo-")
	if err != nil {
		return "", "", err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	meter := x.Meter("making a file", int64(f.Size))
	defer meter.Stop()
	random, sum, b := rand.NewChaCha8([32]byte{seed & 255}), sha256.New(), make([]byte, 1<<20)
	for left := int64(f.Size); left > 0; left -= int64(len(b)) {
		if ctx.Err() != nil {
			return "", "", context.Cause(ctx)
		}
		b = b[:min(left, int64(len(b)))]
		_, _ = random.Read(b) // it never fails
		sum.Write(b)
		meter.Add(len(b))
		if _, err := file.Write(b); err != nil {
			return "", "", err
		}
	}
	return file.Name(), fmt.Sprintf("%x", sum.Sum(nil)), file.Sync()
}

// coopDisk times reads of single pages of the file.
func coopDisk(ctx context.Context, file *os.File, size int64) (r coopFault, err error) {
	const reads = 500
	b, err := unix.Mmap(-1, 0, coopPage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, as O_DIRECT needs it
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(b)) }()
	h := hdrhistogram.New(1, int64(time.Minute), 3)
	for range reads {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		start := time.Now()
		if _, err := file.ReadAt(b, rand.Int64N(size/coopPage)*coopPage); err != nil {
			return r, err
		}
		_ = h.RecordValue(int64(min(max(time.Since(start), 1), time.Minute))) // within the range
	}
	return coopFault{P50: float64(h.ValueAtPercentile(50)) / 1e3, P99: float64(h.ValueAtPercentile(99)) / 1e3}, nil
}

// coopDevices are addresses of NICs on one UDP wire: that of this process, and of the others.
func coopDevices() (list []string, err error) {
	var ports []string
	for range coopProcesses + 1 {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer c.Close()
		ports = append(ports, c.LocalAddr().String())
	}
	for i, p := range ports {
		others := append(append([]string{}, ports[:i]...), ports[i+1:]...)
		list = append(list, "emu:?wire=udp://"+p+"&peer="+strings.Join(others, ",")+coopOptions)
	}
	return list, nil
}

// coopTogether is coopReader while two other processes lend their memory.
func (x *commands) coopTogether(ctx context.Context, devices []string, f *demoFlags, digest string) (r coopReport, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var idle []*exec.Cmd
	var errs []*bytes.Buffer
	defer func() {
		cancel()
		for i, c := range idle {
			if werr := c.Wait(); err == nil && !errors.Is(werr, context.Canceled) {
				err = coopFailed(werr, errs[i])
			}
		}
	}()
	for i := 1; i < coopProcesses; i++ {
		c, said, err := coopProcess(ctx, devices, i, f, true, 0)
		if err != nil {
			return r, err
		}
		if err := c.Start(); err != nil {
			return r, err
		}
		idle, errs = append(idle, c), append(errs, said)
	}
	return x.coopReader(ctx, devices, f, digest, true)
}

// coopReader reads in a process, and says what that has counted.
func (x *commands) coopReader(ctx context.Context, devices []string, f *demoFlags, digest string, together bool) (r coopReport, err error) {
	c, said, err := coopProcess(ctx, devices, 0, f, together, coopReadsEach*int(f.Size/coopPage))
	if err != nil {
		return r, err
	}
	out, what := new(bytes.Buffer), "alone"
	if together {
		what = "with two idle processes"
	}
	c.Stdout = out
	if style, err := x.Style(); err == nil && style != progress.None {
		x.Note("one process reads, %s:", what)
		c.Args = append(c.Args, "--progress", map[progress.Style]string{progress.Bar: "bar", progress.Plain: "plain"}[style])
		c.Stderr = io.MultiWriter(c.Stderr, x.Stderr)
	}
	if err := c.Run(); err != nil && ctx.Err() == nil {
		return r, coopFailed(err, said)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil && ctx.Err() == nil {
		return r, fmt.Errorf("what a process has read: %w", err)
	}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if r.Digest != digest {
		return r, fmt.Errorf("a process has read other pages than there are: digest %s, not %s", r.Digest, digest)
	}
	return r, nil
}

// coopProcess is this program as client i, and what it says on its standard error. When this process
// ends, it ends.
func coopProcess(ctx context.Context, devices []string, i int, f *demoFlags, together bool, reads int) (*exec.Cmd, *bytes.Buffer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	list := []string{"memory", "cooperate", "--device", devices[1+i], "--server", "demo", "--cache", fmt.Sprint(int64(f.Memory)), "--reads", fmt.Sprint(reads), "--timeout", "10s", "--json"}
	if together {
		list = append(list, "--name", fmt.Sprint("process-", i))
		for i := range coopProcesses {
			list = append(list, "--client", fmt.Sprint("process-", i))
		}
	}
	c := exec.CommandContext(ctx, self, list...)
	said := new(bytes.Buffer)
	c.Stderr = said
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGINT) }
	c.WaitDelay = coopSettle
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return c, said, nil
}

// coopFailed adds to the end of a process what it has said.
func coopFailed(err error, from *bytes.Buffer) error {
	if said := strings.TrimSpace(from.String()); err != nil && said != "" {
		return fmt.Errorf("a process of the demo: %w: %s", err, said)
	}
	return err
}

func (x *commands) printCoopDemo(w io.Writer, r coopDemoReport) error {
	on, off := x.Emphasis()
	fmt.Fprintf(w, "%sa file of %s%s, read at random by pages of %s; the cache of a process is %s\n\n", on, option.Bytes(r.Bytes), off, option.Bytes(coopPage), option.Bytes(r.Cache))
	fmt.Fprintf(w, "%s%-22s %9s %9s %9s %9s %9s %9s%s\n", on, "", "reads", "own", "others'", "server", "hits", "time", off)
	for _, row := range []struct {
		name string
		*coopReads
	}{{"one process", r.Alone}, {"with two idle ones", r.Together}} {
		if n := row.coopReads; n != nil {
			fmt.Fprintf(w, "%-22s %9d %9d %9d %9d %8.1f%% %7.2f s\n", row.name, n.Count, n.Own, n.Clients, n.Servers, 100*n.Ratio, n.Seconds)
		}
	}
	if len(r.Faults) > 0 {
		fmt.Fprintf(w, "\n%s%-50s %9s %9s%s\n", on, "a page at a fault, from", "p50", "p99", off)
	}
	for _, n := range r.Faults {
		fmt.Fprintf(w, "%-50s %6.1f us %6.1f us\n", n.From, n.P50, n.P99)
	}
	var err error
	if !r.Direct {
		_, err = fmt.Fprintln(w, "\nThe file system refuses O_DIRECT, or is in memory as tmpfs: no disk was read. --folder names another place.")
	}
	if r.Incomplete != "" && err == nil {
		_, err = fmt.Fprintf(w, "Incomplete, it ended early: %s\n", r.Incomplete)
	}
	return err
}
