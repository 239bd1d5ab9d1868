//go:build nffgo

// Package firewall has the common part of package nffgo's examples: nff-go started and stopped
// on any machine, and access lists.
package firewall

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/intel-go/nff-go/common"
	"github.com/intel-go/nff-go/flow"
)

// Init is flow.SystemInit without huge pages, PCI devices and nff-go's scheduler, for a
// graph that takes so many cores, with devices of DPDK's such as "net_null0".
func Init(cores int, devices ...string) error {
	args := []string{
		"--no-huge", "-m", "256", "--no-pci", "--iova-mode=va", "--no-telemetry", "--no-shconf",
		"--file-prefix", fmt.Sprintf("nffgo%d", os.Getpid()),
		// Threads that share a core must not wait for one another as DPDK's pools usually do.
		"--mbuf-pool-ops-name=ring_mt_rts",
		// DPDK would keep this thread, and those that it starts, on one core.
		"--lcores", fmt.Sprintf("0@(0-%d)", runtime.NumCPU()-1),
	}
	for _, d := range devices {
		args = append(args, "--vdev="+d)
	}
	err := flow.SystemInit(&flow.Config{
		DisableScheduler:      true,
		RingSize:              128,
		MbufNumber:            1<<14 - 1,
		TXQueuesNumberPerPort: 1, // of more it uses one after the other, and frames overtake each other
		NoSetSIGINTHandler:    true,
		SchedulerInterval:     100,
		LogType:               common.No | common.Initialization,
		DPDKArgs:              args,
	})
	if err == nil {
		shareCores(cores)
	}
	return err
}

// Run starts the graph and stops it when ctx ends, or when the graph does not start.
// started is called in between.
func Run(ctx context.Context, started func()) error {
	running, ended := make(chan struct{}), make(chan error, 1)
	// nff-go does not tell when it has started: it calls timers from then on.
	flow.AddTimer(time.Millisecond, func(flow.UserContext) { close(running) }).AddVariant(nil)
	go func() { ended <- flow.SystemStart() }() // keeps its thread
	select {
	case err := <-ended:
		return err
	case <-running:
	}
	started()
	<-ctx.Done()
	return flow.SystemStop()
}
