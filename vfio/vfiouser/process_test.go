package vfiouser_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// victimVariable, if set, makes the test program a client of the server at the
// path that it holds.
const victimVariable = "TRAPEZE_TEST_VICTIM"

// victim has the device copy its memory for ever, says so, and waits to be
// killed.
func victim(path string) error {
	d, err := vfio.Open(context.Background(), "vfio-user:"+path)
	if err != nil {
		return err
	}
	mem, err := vfio.AllocMemory(64*page, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		return err
	}
	event, err := vfio.NewEventfd()
	if err != nil {
		return err
	}
	word := func(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
	if err := errors.Join(d.MapDMA(mem, 0x100000, both), d.SetIRQs(vfio.IRQMSIX, 0, []int{event.FD()}),
		d.WriteRegion(0, regSource, word(0x100000)), d.WriteRegion(0, regTarget, word(0x100000+32*page)),
		d.WriteRegion(0, regLength, word(32 * page)[:4]), d.WriteRegion(0, regStart, word(2)[:4])); err != nil {
		return err
	}
	if err := event.Wait(context.Background()); err != nil {
		return err
	}
	fmt.Println("copying")
	select {}
}

// TestKilledClient: a process dies in the middle of its work.
func TestKilledClient(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	self := must.Get(os.Executable())(t)
	for range 3 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), victimVariable+"="+r.path)
		cmd.Stderr = os.Stderr
		out := must.Get(cmd.StdoutPipe())(t)
		must.OK(t, cmd.Start())
		must.Give(bufio.NewReader(out).ReadString('\n'))(t, "copying\n")
		must.OK(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		r.idle(t)
		r.holds(t, 0, 0)
	}
	read32(t, r.open(t), regID)
}
