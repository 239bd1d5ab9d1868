package main

import (
	"errors"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// BenchmarkOneWay reports what a message takes of a processor, from C and from Go: its
// post, its receive, the next receive's post, and taking the send back, on one thread with
// both NICs. The difference is what four calls from C into Go cost.
func BenchmarkOneWay(b *testing.B) {
	program := compile(b, filepath.Join("testdata", "oneway.c"))
	const size = 64
	b.Run("C", func(b *testing.B) {
		out, err := command(b, program, append([]string{strconv.Itoa(b.N), strconv.Itoa(size)}, pair("oneway")...)...).CombinedOutput()
		if err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(ns, "ns/message")
		b.ReportMetric(0, "ns/op") // with the start of a program
	})
	b.Run("Go", func(b *testing.B) {
		var nics [2]*via.NIC
		for i, address := range pair("oneway") {
			n, err := via.Open(b.Context(), address, via.Options{Logger: logger})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = n.Close() })
			nics[i] = n
		}
		var ends [2]*conform.End
		ends[0], ends[1] = conform.NewWorld(b, nics[0], nics[1]).Connect(conform.Setup{})
		for _, e := range ends {
			e.Prepare(b, e.Send[0], 0, size)
			if err := e.VI.PostRecv(e.Prepare(b, e.Recv[0], 4096, size)); err != nil {
				b.Fatal(err)
			}
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		from, start := 0, processorTime(b)
		for b.Loop() {
			x, y := ends[from], ends[1-from]
			if err := x.VI.PostSend(x.Send[0]); err != nil {
				b.Fatal(err)
			}
			d := take(b, y.VI.RecvDone)
			d.Rearm()
			if err := y.VI.PostRecv(d); err != nil {
				b.Fatal(err)
			}
			take(b, x.VI.SendDone).Rearm()
			from = 1 - from
		}
		b.ReportMetric(float64(processorTime(b)-start)/float64(b.N), "ns/message")
	})
}

// processorTime is what this thread has used, in ns, as the program in C measures it.
func processorTime(b *testing.B) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return t.Nano()
}

func take(b *testing.B, done func() (*via.Descriptor, error)) *via.Descriptor {
	for {
		d, err := done()
		if err == nil {
			return d
		}
		if !errors.Is(err, via.ErrNotDone) {
			b.Fatal(err)
		}
	}
}
