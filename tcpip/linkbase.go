package tcpip

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// spin is the time for which a link polls after the last packet before it sleeps: an interrupt and two wake-ups of idle cores take as long.
const spin = 100 * time.Microsecond

// idle lets the stack's goroutines run, and then other threads on this core: the other end may be one of them.
func idle() {
	runtime.Gosched()
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // always succeeds: sched_yield(2)
}

// linkBase is the part of stack.LinkEndpoint that a port and a ring share, and their goroutines.
type linkBase struct {
	mac          gvisor.LinkAddress // empty where there are no stations
	mtu          uint32             // the longest IP packet, in bytes
	capabilities stack.LinkEndpointCapabilities
	stop         context.CancelFunc
	workers      sync.WaitGroup
	to           atomic.Pointer[stack.NetworkDispatcher]
	stats        Counters
}

// begin returns a context that halt ends, for the goroutines of workers.
func (l *linkBase) begin() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	return ctx
}

// halt ends the goroutines. It may be called again.
func (l *linkBase) halt() {
	if l.stop != nil {
		l.stop()
	}
	l.workers.Wait()
}

// MTU implements stack.NetworkLinkEndpoint.
func (l *linkBase) MTU() uint32 { return l.mtu }

// SetMTU implements stack.NetworkLinkEndpoint. The MTU does not change.
func (l *linkBase) SetMTU(uint32) {}

// LinkAddress implements stack.NetworkLinkEndpoint.
func (l *linkBase) LinkAddress() gvisor.LinkAddress { return l.mac }

// SetLinkAddress implements stack.NetworkLinkEndpoint. The address does not change.
func (l *linkBase) SetLinkAddress(gvisor.LinkAddress) {}

// Capabilities implements stack.NetworkLinkEndpoint.
func (l *linkBase) Capabilities() stack.LinkEndpointCapabilities { return l.capabilities }

// GSOMaxSize implements stack.GSOEndpoint.
func (l *linkBase) GSOMaxSize() uint32 { return stack.GVisorGSOMaxSize }

// SupportedGSO implements stack.GSOEndpoint: the stack makes large segments, and the link cuts them.
func (l *linkBase) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// Attach implements stack.NetworkLinkEndpoint.
func (l *linkBase) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		l.to.Store(nil)
		return
	}
	l.to.Store(&d)
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (l *linkBase) IsAttached() bool { return l.to.Load() != nil }

// Wait implements stack.NetworkLinkEndpoint.
func (l *linkBase) Wait() { l.workers.Wait() }

// Close implements stack.NetworkLinkEndpoint.
func (l *linkBase) Close() { l.halt() }

// SetOnCloseAction implements stack.NetworkLinkEndpoint. Port and ring are the Stack's to close.
func (l *linkBase) SetOnCloseAction(func()) {}
