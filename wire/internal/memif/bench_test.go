package memif_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/wire/internal/memif"
)

// burst is how many frames go out with one Flush: as many as testpmd sends and
// receives at a time.
const burst = 32

// pump sends n frames of size bytes, each copied from a buffer of the caller's.
func pump(p *memif.Port, n, size int) {
	frame := make([]byte, size)
	for sent := 0; sent < n; {
		q := p.Reserve(size)
		if q == nil {
			p.Flush()
			runtime.Gosched()
			continue
		}
		copy(q, frame)
		p.Commit()
		if sent++; sent%burst == 0 {
			p.Flush()
		}
	}
	p.Flush()
}

// drain receives n frames and copies each into a buffer of the caller's.
func drain(p *memif.Port, n, size int) error {
	frame := make([]byte, size)
	for got, idle := 0, 0; got < n; {
		f := p.Receive()
		if f == nil {
			if idle++; idle%1024 == 0 {
				if !p.LinkUp() {
					return fmt.Errorf("the link is down after %d frames of %d: %w", got, n, p.Stats().Err)
				}
				runtime.Gosched()
			}
			continue
		}
		if copy(frame, f) != size {
			return fmt.Errorf("frame %d has %d bytes", got, len(f))
		}
		p.Release()
		got++
	}
	return nil
}

// BenchmarkOneWay sends frames one way: testpmd's txonly and rxonly.
func BenchmarkOneWay(b *testing.B) {
	for _, size := range []int{64, 1500} {
		for _, role := range []memif.Role{memif.Client, memif.Server} {
			b.Run(fmt.Sprintf("%dB/%s sends/goroutines", size, role), func(b *testing.B) {
				from, to := connected(b, memif.Options{Role: role}, memif.Options{})
				done := make(chan error)
				b.ResetTimer()
				go func() { done <- drain(to, b.N, size) }()
				pump(from, b.N, size)
				if err := <-done; err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpps")
			})
			b.Run(fmt.Sprintf("%dB/%s sends/processes", size, role), func(b *testing.B) {
				benchmarkProcesses(b, role, size)
			})
		}
	}
}

// sinkVariable, if set, makes the test program receive frames: it holds role,
// socket, and the size of frames. What is to be received is on standard input,
// a number of frames a line; each is answered with a line.
const sinkVariable = "TRAPEZE_TEST_SINK"

func sink(arguments string) error {
	var role memif.Role
	var size int
	var socket string
	if _, err := fmt.Sscan(arguments, &role, &size, &socket); err != nil {
		return err
	}
	p, err := memif.New(memif.Options{Role: role, Socket: socket})
	if err != nil {
		return err
	}
	defer p.Close()
	waitUp(p)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		n, err := strconv.Atoi(strings.TrimSpace(in.Text()))
		if err != nil {
			return err
		}
		if err := drain(p, n, size); err != nil {
			return err
		}
		fmt.Println("done")
	}
	return in.Err()
}

func benchmarkProcesses(b *testing.B, role memif.Role, size int) {
	socket := socketPath(b)
	cmd := exec.CommandContext(b.Context(), testProgram(b))
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", sinkVariable, memif.Client+memif.Server-role, size, socket))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p := newPort(b, memif.Options{Role: role, Socket: socket})
	waitUp(p)
	answers := bufio.NewReader(out)
	b.ResetTimer()
	fmt.Fprintln(in, b.N)
	pump(p, b.N, size)
	if line, err := answers.ReadString('\n'); err != nil {
		b.Fatal(line, err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpps")
	if err := in.Close(); err != nil {
		b.Error(err)
	}
	if _, err := io.Copy(io.Discard, answers); err != nil {
		b.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Error(err)
	}
}

// BenchmarkOneThread has one goroutine at both ends: what a frame costs without
// the way between two processors.
func BenchmarkOneThread(b *testing.B) {
	for _, size := range []int{64, 1500} {
		for _, role := range []memif.Role{memif.Client, memif.Server} {
			b.Run(fmt.Sprintf("%dB/%s sends", size, role), func(b *testing.B) {
				from, to := connected(b, memif.Options{Role: role}, memif.Options{})
				frame := make([]byte, size)
				for b.Loop() {
					for range burst {
						copy(from.Reserve(size), frame)
						from.Commit()
					}
					from.Flush()
					for f := to.Receive(); f != nil; f = to.Receive() {
						copy(frame, f)
						to.Release()
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(burst*b.N), "ns/frame")
			})
		}
	}
}
