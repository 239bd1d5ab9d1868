package kernel

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestOpen(t *testing.T) {
	forEachBackend(t, func(t *testing.T, k *fake, d *Device) {
		want := vfio.Info{Address: "pci:" + nic + "?backend=" + d.Info().Backend, Backend: d.Info().Backend,
			Resettable: true, Regions: 9, IRQs: 5}
		should.Be(t, cmp.Diff(want, d.Info()), "")
		should.Be(t, k.functions[nic].command()&vfio.CommandBusMaster, 0, "bus mastering is on after open")
		for _, index := range []int{vfio.IRQErr, vfio.IRQReq} {
			should.Be(t, len(k.functions[nic].connected(k, index)), 1, "%s interrupts that are armed", irqName(index))
		}
	})
}

// TestChoice: cdev, else the group; without an IOMMU only if asked.
func TestChoice(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(tr tree, k *fake)
		query  string
		env    string
		want   string // back end; empty: error
		err    error
		says   string
	}{
		{name: "all there", want: backendCdev},
		{name: "no node", change: func(tr tree, _ *fake) { tr.remove("dev/vfio/devices") }, want: backendGroup},
		{name: "no iommufd", change: func(tr tree, _ *fake) { tr.remove("dev/iommu") }, want: backendGroup},
		{name: "no permission for iommufd", change: func(_ tree, k *fake) { k.fail["open dev/iommu"] = unix.EACCES }, want: backendGroup},
		{name: "no permission for the node", change: func(_ tree, k *fake) { k.fail["open dev/vfio/devices/vfio0"] = unix.EACCES }, want: backendGroup},
		{name: "busy is busy", change: func(_ tree, k *fake) { k.fail["BIND_IOMMUFD"] = unix.EBUSY }, err: unix.EBUSY},
		{name: "token that the node does not take", query: "?vf_token=00112233-4455-6677-8899-AABBCCDDEEFF", change: func(_ tree, k *fake) {
			k.functions[nic].token, k.functions[nic].noTokens = "00112233-4455-6677-8899-aabbccddeeff", true
		}, want: backendGroup},
		{name: "token", query: "?vf_token=00112233-4455-6677-8899-aabbccddeeff", change: func(_ tree, k *fake) {
			k.functions[nic].token = "00112233-4455-6677-8899-aabbccddeeff"
		}, want: backendCdev},
		{name: "token for a group", query: "?backend=group&vf_token=00112233-4455-6677-8899-aabbccddeeff", change: func(_ tree, k *fake) {
			k.functions[nic].token = "00112233-4455-6677-8899-aabbccddeeff"
		}, want: backendGroup},
		{name: "token missing", change: func(_ tree, k *fake) { k.functions[nic].token = "00112233-4455-6677-8899-aabbccddeeff" },
			query: "?backend=cdev", err: unix.EACCES, says: "vf_token=UUID"},
		{name: "token missing for a group", change: func(_ tree, k *fake) { k.functions[nic].token = "00112233-4455-6677-8899-aabbccddeeff" },
			query: "?backend=group", err: unix.EACCES, says: "vf_token=UUID"},
		{name: "neither works", change: func(tr tree, k *fake) {
			k.fail["open dev/iommu"] = unix.EACCES
			k.fail["open dev/vfio/7"] = unix.EACCES
		}, err: unix.EACCES, says: "group"},
		{name: "unguarded", change: func(tr tree, _ *fake) { unguard(tr) }, err: vfio.ErrNotSupported, says: "backend=noiommu"},
		{name: "unguarded and asked", change: func(tr tree, k *fake) { unguard(tr); k.viable[0] = true }, query: "?backend=noiommu", want: backendNoIOMMU},
		{name: "unguarded and allowed", change: func(tr tree, k *fake) { unguard(tr); k.viable[0] = true }, env: "allow", want: backendNoIOMMU},
		{name: "unguarded and not quite allowed", change: func(tr tree, _ *fake) { unguard(tr) }, env: "1", err: vfio.ErrNotSupported},
		{name: "unguarded and a group asked for", change: func(tr tree, _ *fake) { unguard(tr) }, query: "?backend=group", err: vfio.ErrNotSupported},
		{name: "guarded and not wanted", query: "?backend=noiommu", err: vfio.ErrNotSupported, says: "an IOMMU guards"},
		{name: "guarded, and allowed to be without", env: "allow", want: backendCdev},
		{name: "cdev asked for and not there", change: func(tr tree, _ *fake) { tr.remove("dev/vfio/devices") }, query: "?backend=cdev",
			err: unix.ENOENT, says: "backend=group"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFiles(t)
			t.Setenv(noIOMMUVariable, tt.env)
			tr := machine(t)
			k, h := openFake(t, tr)
			if tt.change != nil {
				tt.change(tr, k)
			}
			d, err := tryOpen(t, h, "pci:"+nic+tt.query)
			if tt.want == "" {
				must.Hold(t, errors.Is(err, tt.err), "error %v, want %v", err, tt.err)
				says(t, err, tt.says)
				return
			}
			must.OK(t, err)
			should.Be(t, d.Info().Backend, tt.want, "back end")
			should.OK(t, d.Close())
		})
	}
}

// TestFailingSteps lets each step fail as it does on real machines: the error
// says what to do.
func TestFailingSteps(t *testing.T) {
	both := []string{backendGroup, backendCdev}
	doctor := []string{"trapeze doctor " + nic}
	for _, tt := range []struct {
		name     string
		backends []string
		change   func(tr tree, k *fake)
		err      error
		says     []string
	}{
		{"no such function", both, func(tr tree, _ *fake) { tr.remove("sys/bus/pci/devices", nic) },
			unix.ENODEV, []string{"find pci:" + nic, "lspci -D"}},
		{"another driver", both, func(tr tree, _ *fake) {
			tr.remove("dev/vfio")
			tr.remove("sys/bus/pci/devices", nic, "driver")
			tr.link("../../drivers/ice", "sys/bus/pci/devices", nic, "driver")
		}, unix.ENOENT, doctor},
		{"no driver", both, func(tr tree, _ *fake) {
			tr.remove("dev/vfio")
			tr.remove("sys/bus/pci/devices", nic, "driver")
		}, unix.ENOENT, doctor},
		{"a bridge", both, func(tr tree, _ *fake) {
			tr.remove("dev/vfio")
			tr.remove("sys/bus/pci/devices", nic)
			tr.function(nic, "pcieport", -1, "0x060400")
		}, unix.ENOENT, doctor},
		{"no IOMMU", both, func(tr tree, _ *fake) {
			tr.remove("dev/vfio")
			tr.remove("sys/bus/pci/devices", nic, "iommu_group")
		}, unix.ENOENT, doctor},
		{"no VFIO nodes", both, func(tr tree, _ *fake) { tr.remove("dev/vfio") }, unix.ENOENT, doctor},
		{"no container node", both[:1], func(tr tree, _ *fake) { tr.remove("dev/vfio/vfio") }, unix.ENOENT, doctor},
		{"no group node", both[:1], func(tr tree, _ *fake) { tr.remove("dev/vfio/7") }, unix.ENOENT, doctor},
		{"no permission", both[:1], func(_ tree, k *fake) { k.fail["open dev/vfio/7"] = unix.EACCES }, unix.EACCES, doctor},
		{"busy", both[:1], func(tr tree, k *fake) {
			k.fail["open dev/vfio/7"] = unix.EBUSY
			tr.holder(4711, "qemu", "dev/vfio/7")
		}, unix.EBUSY, []string{"open group", "process 4711 (qemu) holds it"}},
		{"busy, by whom nobody knows", both[:1], func(_ tree, k *fake) { k.fail["open dev/vfio/7"] = unix.EBUSY }, unix.EBUSY, []string{"fuser -v"}},
		{"too many files", both[:1], func(_ tree, k *fake) { k.fail["open dev/vfio/7"] = unix.EMFILE }, unix.EMFILE, doctor},
		{"not a container", both[:1], func(_ tree, k *fake) { k.fail["GET_API_VERSION"] = unix.ENOTTY }, unix.ENOTTY, doctor},
		{"no type 1 IOMMU", both[:1], func(_ tree, k *fake) { k.extensions = nil }, vfio.ErrNotSupported, doctor},
		{"status", both[:1], func(_ tree, k *fake) { k.fail["GROUP_GET_STATUS"] = unix.EIO }, unix.EIO, []string{"status"}},
		{"not viable", both[:1], func(tr tree, k *fake) {
			k.viable[7] = false
			tr.function("0000:03:00.1", "ice", 7, nicClass)
			tr.function("0000:00:01.0", "pcieport", 7, "0x060400")
			tr.function("0000:00:02.0", "shpchp", 7, "0x060400")
			tr.function("0000:03:00.2", "", 7, nicClass)
		}, errNotViable, append([]string{"not viable", "0000:03:00.1 belongs to ice;"}, doctor...)},
		{"not viable when put into a container", both[:1], func(tr tree, k *fake) {
			k.fail["SET_CONTAINER"] = unix.EPERM
			tr.function("0000:03:00.1", "ice", 7, nicClass)
		}, unix.EPERM, []string{"0000:03:00.1 belongs to ice"}},
		{"container taken", both[:1], func(_ tree, k *fake) { k.fail["SET_CONTAINER"] = unix.EBUSY }, unix.EBUSY, []string{"holds it"}},
		{"no interrupt remapping", both[:1], func(_ tree, k *fake) { k.fail["SET_IOMMU"] = unix.EPERM }, unix.EPERM, doctor},
		{"no IOMMU driver", both[:1], func(_ tree, k *fake) { k.fail["SET_IOMMU"] = unix.ENODEV }, unix.ENODEV, doctor},
		{"device not in the group", both[:1], func(_ tree, k *fake) { delete(k.functions, nic) }, unix.ENODEV, doctor},
		{"reset under way", both[:1], func(_ tree, k *fake) { k.fail["GET_DEVICE_FD"] = unix.EAGAIN }, unix.EAGAIN, doctor},
		{"asleep", both[:1], func(tr tree, k *fake) {
			k.fail["GET_DEVICE_FD"] = unix.EIO
			tr.file("D3cold\n", "sys/bus/pci/devices", nic, "power_state")
		}, unix.EIO, append([]string{"power state D3cold"}, doctor...)},

		{"iommufd busy", both[1:], func(_ tree, k *fake) { k.fail["open dev/iommu"] = unix.ENODEV }, unix.ENODEV, doctor},
		{"iommufd old", both[1:], func(_ tree, k *fake) { k.fail["IOAS_ALLOC"] = unix.ENOTTY }, unix.ENOTTY, doctor},
		{"iommufd full", both[1:], func(_ tree, k *fake) { k.fail["IOAS_ALLOC"] = unix.ENOMEM }, unix.ENOMEM, doctor},
		{"node held", both[1:], func(tr tree, k *fake) {
			k.fail["BIND_IOMMUFD"] = unix.EINVAL
			tr.holder(99, "dpdk", "dev/vfio/devices/vfio0")
		}, unix.EBUSY, []string{"process 99 (dpdk) holds it"}},
		{"group held", both[1:], func(tr tree, k *fake) {
			k.fail["BIND_IOMMUFD"] = unix.EBUSY
			tr.holder(98, "vpp", "dev/vfio/7")
		}, unix.EBUSY, []string{"process 98 (vpp) holds it"}},
		{"no interrupt isolation", both[1:], func(_ tree, k *fake) { k.fail["BIND_IOMMUFD"] = unix.EPERM }, unix.EPERM, doctor},
		{"bind without IOMMU", both[1:], func(_ tree, k *fake) { k.fail["BIND_IOMMUFD"] = unix.ENODEV }, unix.ENODEV, doctor},
		{"attach", both[1:], func(_ tree, k *fake) { k.fail["ATTACH"] = unix.EBUSY }, unix.EBUSY, doctor},

		{"gone", both, func(_ tree, k *fake) { k.functions[nic].gone = true }, vfio.ErrDeviceGone, append([]string{"all ones"}, doctor...)},
		{"not PCI", both, func(_ tree, k *fake) { k.fail["GET_INFO"] = unix.EIO }, unix.EIO, []string{"describe"}},
		{"region", both, func(_ tree, k *fake) { k.fail["GET_REGION_INFO"] = unix.EIO }, unix.EIO, []string{"region 0"}},
		{"nonsense region", both, func(_ tree, k *fake) {
			k.functions[nic].regions[2].caps = [][]byte{rangesCapability(regionCapSparseMmap, [2]uint64{0, 1 << 40})}
		}, errBadAnswer, []string{"region 2"}},
		{"interrupts", both, func(_ tree, k *fake) { k.fail["GET_IRQ_INFO"] = unix.EIO }, unix.EIO, []string{"interrupt 0"}},
		{"arming", both, func(_ tree, k *fake) { k.fail["SET_IRQS"] = unix.EIO }, unix.EIO, []string{"error interrupt"}},
		{"configuration space", both, func(_ tree, k *fake) { k.functions[nic].regions[vfio.RegionConfig].broken = unix.EIO }, unix.EIO, nil},
	} {
		for _, b := range tt.backends {
			t.Run(tt.name+"/"+b, func(t *testing.T) {
				checkFiles(t)
				tr := machine(t)
				k, h := openFake(t, tr)
				tt.change(tr, k)
				_, err := tryOpen(t, h, "pci:"+nic+"?backend="+b)
				must.Hold(t, errors.Is(err, tt.err), "error %v, want %v", err, tt.err)
				says(t, err, append(tt.says, nic)...)
				var e *vfio.Error
				should.Hold(t, errors.As(err, &e) && e.Op != "" && e.Device == "pci:"+nic+"?backend="+b,
					"not a *vfio.Error with step and device: %#v", e)
			})
		}
	}
}

// TestNothingLeaks lets each call fail in turn, while a device is opened, used
// and closed. Whatever comes of it, nothing stays open.
func TestNothingLeaks(t *testing.T) {
	for _, b := range backends {
		t.Run(b, func(t *testing.T) {
			checkFiles(t)
			// The first round, in which nothing fails, counts the calls; a failure
			// may lead to more of them.
			calls := 1
			for n := -1; n < calls; n++ {
				tr := machine(t)
				k, h := openFake(t, tr)
				if b == backendNoIOMMU {
					unguard(tr)
					k.viable[0] = true
				}
				k.failAt, k.nth = n, unix.EREMOTEIO
				d, err := tryOpen(t, h, "pci:"+nic+"?backend="+b)
				if err == nil {
					err = errors.Join(exercise(t, d), d.Close())
				}
				if err == nil && n >= 0 && n < len(k.calls) {
					t.Errorf("call %d, %s, failed and nobody heard of it", n, k.calls[n])
				}
				should.Hold(t, err == nil || errors.Is(err, unix.EREMOTEIO), "call %d: %v", n, err)
				should.Hold(t, len(h.devices)+len(h.domains) == 0, "call %d: the host remembers %v, %v", n, h.devices, h.domains)
				calls = max(calls, len(k.calls))
			}
			t.Logf("each of %d calls failed once", calls)
		})
	}
}

// exercise uses a device and returns what went wrong.
func exercise(t *testing.T, d *Device) error {
	t.Helper()
	fd := eventfd(t)
	errs := []error{d.SetIRQs(vfio.IRQMSIX, 0, []int{fd.FD(), fd.FD()})}
	if d.Info().Backend != backendNoIOMMU {
		mem := alloc(t, 4096)
		errs = append(errs, d.MapDMA(mem, 0x10000, vfio.DMARead))
	}
	for _, offset := range []uint64{0, 4096} {
		m, err := d.MapRegion(0, offset, 4096)
		errs = append(errs, err)
		if err == nil && offset == 0 {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, d.Reset(context.Background()))...)
}

func TestOpenTwice(t *testing.T) {
	forEachBackend(t, func(t *testing.T, _ *fake, d *Device) {
		_, err := tryOpen(t, d.host, d.Info().Address)
		must.Hold(t, errors.Is(err, unix.EBUSY), "%v", err)
		says(t, err, "this process has it open already")
		// Afterwards it can be opened again.
		must.OK(t, d.Close())
		again := must.Get(tryOpen(t, d.host, d.Info().Address))(t)
		should.OK(t, again.Close())
	})
}

func TestOpenEnded(t *testing.T) {
	_, h := openFake(t, machine(t))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := must.Get(vfio.ParseAddress("pci:" + nic))(t)
	should.Refuse(h.open(ctx, a))(t, context.Canceled, "with a context that is over")
	h.turn <- struct{}{} // somebody is opening something
	should.Refuse(h.open(ctx, a))(t, context.Canceled, "while somebody is opening")
}

// TestRegistered opens through package vfio on the real machine, where there is
// no such function.
func TestRegistered(t *testing.T) {
	should.Refuse(vfio.Open(context.Background(), "pci:ffff:ff:1f.7"))(t, unix.ENODEV, "a function that no machine has")
}
