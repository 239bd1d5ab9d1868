package driver_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// alerting is a device whose back end has something to say.
type alerting struct {
	*emulator.Device
	alerts chan error
}

func (a alerting) Alerts() <-chan error { return a.alerts }

// TestAlerts has the back end take the device away, or say that it has failed,
// while somebody waits.
func TestAlerts(t *testing.T) {
	broken := errors.New("uncorrectable error")
	for _, c := range []struct {
		name        string
		alert, want error
	}{
		{"gone", vfio.ErrDeviceGone, driver.ErrDeviceGone},
		{"failed", broken, driver.ErrDeviceFault},
		{"failed, with the cause", broken, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			da, db, err := emulator.Pair(emulator.PairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			d := alerting{da, make(chan error, 1)}
			n, err := driver.New(contextFor(t), d, driver.Options{})
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan datasheet.Event, 8)
			n.OnEvent(func(e datasheet.Event) {
				if e.Code != datasheet.EventLink {
					told <- e
				}
			})
			waited := make(chan error, 1)
			go func() {
				_, err := n.ConnectWait(contextFor(t), "x")
				waited <- err
			}()
			d.alerts <- c.alert
			select {
			case e := <-told:
				if e.Code != datasheet.EventCatastrophic {
					t.Errorf("the handler was told %+v", e)
				}
			case <-time.After(timeout):
				t.Error("the handler was not told")
			}
			if err := <-waited; !errors.Is(err, c.want) {
				t.Errorf("the wait ended with %v, want %v", err, c.want)
			}
			if _, err := n.CreatePtag(contextFor(t)); !errors.Is(err, c.want) {
				t.Errorf("a command: %v", err)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEndIsNoticed ends a device in the ways in which devices end, while its program
// does what programs do. The handler of events is told once, and so is one that is
// set later; posts fail, on full queues too, and so do waits.
func TestEndIsNoticed(t *testing.T) {
	ways := []struct {
		name string
		end  func(r *rig)
		want error
		code uint32 // of the event
	}{
		{"removed", func(r *rig) { r.d.remove() }, driver.ErrDeviceGone, 0},
		{"fault", func(r *rig) {
			r.d.with(func() {
				r.d.set(datasheet.HealthOffset+datasheet.RegFault, datasheet.FaultAdminIndex)
				r.d.set(datasheet.HealthOffset+datasheet.RegStatus, datasheet.DeviceReady|datasheet.DeviceFatal)
			})
		}, driver.ErrDeviceFault, datasheet.FaultAdminIndex},
		{"reset by somebody else", func(r *rig) {
			r.d.with(func() { r.d.set(datasheet.HealthOffset+datasheet.RegResetCount, 77) })
		}, driver.ErrDeviceFault, 0},
		{"says so", func(r *rig) {
			r.d.with(func() {
				r.d.event(datasheet.Event{Code: datasheet.EventCatastrophic, CQ: datasheet.NoCQ, Detail: datasheet.FaultAdminDMA})
			})
		}, driver.ErrDeviceFault, datasheet.FaultAdminDMA},
	}
	does := map[string]func(r *rig, d *descriptors.Descriptor) error{
		"nothing": func(r *rig, _ *descriptors.Descriptor) error { return nil },
		"polls": func(r *rig, _ *descriptors.Descriptor) error {
			for {
				if _, err := r.v.SendDone(); err != descriptors.ErrNotDone {
					return err
				}
			}
		},
		"polls a batch": func(r *rig, _ *descriptors.Descriptor) error {
			var into [3]*descriptors.Descriptor
			for {
				if _, err := r.v.SendDoneBatch(into[:]); err != descriptors.ErrNotDone {
					return err
				}
			}
		},
		"waits": func(r *rig, _ *descriptors.Descriptor) error {
			_, err := r.v.SendWait(context.Background())
			return err
		},
		"waits for a connection": func(r *rig, _ *descriptors.Descriptor) error {
			_, err := r.n.ConnectWait(context.Background(), "x")
			return err
		},
		"posts": func(r *rig, d *descriptors.Descriptor) error {
			for {
				if err := r.v.PostRecv(d); err != nil && !errors.Is(err, driver.ErrPosted) {
					return err
				}
				runtime.Gosched()
			}
		},
	}
	for _, way := range ways {
		for what, do := range does {
			if way.want != driver.ErrDeviceGone && what != "nothing" {
				continue // what a program does makes no difference then
			}
			t.Run(way.name+"/"+what, func(t *testing.T) {
				r := newRig(t, nil, 0, 0)
				ds := r.descriptors(t, 8)
				if n, err := r.v.PostSendBatch(ds[:2]); n != 2 || err != nil {
					t.Fatal(n, err)
				}
				told := make(chan datasheet.Event, 8)
				r.n.OnEvent(func(e datasheet.Event) { told <- e })
				done := make(chan error, 1)
				go func() { done <- do(r, ds[7]) }()
				way.end(r)
				hear := func(who string, from chan datasheet.Event) {
					t.Helper()
					select {
					case e := <-from:
						if e.Code != datasheet.EventCatastrophic || e.Endpoint != 0 || e.CQ != datasheet.NoCQ || e.Detail != way.code {
							t.Errorf("%s was told %+v", who, e)
						}
					case <-time.After(timeout):
						t.Fatalf("%s was not told", who)
					}
				}
				hear("the handler", told)
				if err := <-done; err != nil && !errors.Is(err, way.want) {
					t.Errorf("the program was told %v, want %v", err, way.want)
				}
				for _, post := range []func(*descriptors.Descriptor) error{r.v.PostSend, r.v.PostRecv} {
					for _, d := range ds[2:7] {
						if err := post(d); !errors.Is(err, way.want) {
							t.Errorf("a post: %v, want %v", err, way.want)
						}
					}
				}
				if n, err := r.v.PostSendBatch(ds[2:7]); n != 0 || !errors.Is(err, way.want) {
					t.Errorf("%d of a batch were posted: %v", n, err)
				}
				later := make(chan datasheet.Event, 8)
				r.n.OnEvent(func(e datasheet.Event) { later <- e })
				hear("the handler that was set later", later)
				if err := r.n.Close(); err != nil {
					t.Error(err)
				}
				if len(told)+len(later) > 0 {
					t.Errorf("told again: %d and %d times", len(told), len(later))
				}
			})
		}
	}
}

// TestLookDisturbsNobody: while the device's health is being looked at, a program that
// steps it itself finds what it has posted done, as ever.
func TestLookDisturbsNobody(t *testing.T) {
	checkLeaks(t)
	a, b, err := emulator.Pair(emulator.PairOptions{Doorbells: emulator.DoorbellsMapped}) // posts alone do nothing
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	n, err := driver.New(contextFor(t), a, driver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	m, err := n.AllocMemory(contextFor(t), 4096, driver.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := n.CreateVI(contextFor(t), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 1, RecvDepth: 1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := descriptor(t, m, 0, 8)
	for a.Poll() { // what setting it up has left to do
	}
	stop, stopped, looking := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		var word [4]byte
		for i := 0; ; i++ {
			if i == 1 {
				close(looking)
			}
			for _, register := range []uint64{datasheet.RegStatus, datasheet.RegResetCount} {
				if err := a.ReadRegion(vfio.RegionBAR0, datasheet.HealthOffset+register, word[:]); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	<-looking
	for i := range 100_000 {
		d.Rearm()
		if err := v.PostSend(d); err != nil {
			t.Fatal(i, err)
		}
		if !a.Poll() { // not connected: it is flushed
			t.Errorf("step %d was in vain", i)
			break
		}
		if _, err := v.SendDone(); err == descriptors.ErrNotDone {
			t.Errorf("send %d is not done", i)
			break
		}
	}
	close(stop)
	<-stopped
}

// vanishing is a device that goes away when it is closed down.
type vanishing struct{ *emulator.Device }

func (vanishing) DisableIRQs(int) error { return driver.ErrDeviceGone }

func (v vanishing) UnmapDMA(iova, size uint64) error {
	return errors.Join(v.Device.UnmapDMA(iova, size), driver.ErrDeviceGone)
}

// TestCloseOfDeviceJustGone closes a NIC whose device is found gone only then: there
// is nothing that it could fail to give back.
func TestCloseOfDeviceJustGone(t *testing.T) {
	checkLeaks(t)
	a, b, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	n, err := driver.New(contextFor(t), vanishing{a}, driver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestPostToFullQueue posts to a full queue of a device that has gone: there will
// never be room.
func TestPostToFullQueue(t *testing.T) {
	r := newRig(t, nil, 0, 0)
	ds := r.descriptors(t, 4)
	if n, err := r.v.PostSendBatch(ds); n != 3 || err != descriptors.ErrQueueFull {
		t.Fatal(n, err)
	}
	r.d.remove()
	if _, err := r.n.Health(contextFor(t)); !errors.Is(err, driver.ErrDeviceGone) {
		t.Fatal(err)
	}
	if err := r.v.PostSend(ds[3]); !errors.Is(err, driver.ErrDeviceGone) {
		t.Error(err)
	}
}

// unguarded is a device that says that no IOMMU guards it.
type unguarded struct{ *emulator.Device }

func (unguarded) Unguarded() bool { return true }

// PhysicalAddress makes addresses up: only that the driver asks is tested here.
func (unguarded) PhysicalAddress(m *vfio.Memory) (uint64, error) {
	if m.PageSize() <= 4096 {
		return 0, errors.New("not a huge page")
	}
	return m.Address() & (1<<39 - 1), nil
}

// TestUnguarded: without an IOMMU memory comes from huge pages, or not at all.
func TestUnguarded(t *testing.T) {
	a, b, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	n, err := driver.New(contextFor(t), unguarded{a}, driver.Options{})
	if err == nil {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.Is(err, vfio.ErrNoDMAMemory) {
		t.Error(err)
	}
}
