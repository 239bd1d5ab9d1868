// Steer has a program in the NIC spread UDP flows over two receive queues, and
// prints which flow came where. Both NICs are emulated, in this process, on a wire
// in memory.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"time"

	_ "github.com/trapeze-nic/trapeze/emulator" // makes "emu:" known
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/via"
)

func main() {
	queues, err := steer("emu:?wire=mem:steer", 16)
	if err != nil {
		log.Fatal(err)
	}
	for i, ports := range queues {
		fmt.Printf("queue %d took the flows from ports %v\n", i, ports)
	}
}

// frameSize is room for one frame of this example.
const frameSize = 128

// endpoint sends and takes raw frames.
type endpoint struct {
	vi  *via.VI
	mem *via.Memory
	ds  []*via.Descriptor
}

// steer sends a frame of each of some flows, and returns the source ports that came
// to each of two queues.
func steer(address string, flows int) (ports [2][]int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var nics [2]*via.NIC
	for i := range nics {
		if nics[i], err = via.Open(ctx, address, via.Options{}); err != nil {
			return ports, err
		}
		defer nics[i].Close()
	}
	sender, err := open(ctx, nics[0], 1)
	if err != nil {
		return ports, err
	}
	var queues [2]*endpoint
	for i := range queues {
		if queues[i], err = open(ctx, nics[1], flows); err != nil {
			return ports, err
		}
		for j, d := range queues[i].ds { // a receive for every frame there may be
			if err := errors.Join(queues[i].mem.AddTo(d, j*frameSize, frameSize), queues[i].vi.PostRecv(d)); err != nil {
				return ports, err
			}
		}
	}
	if err := loadSteering(ctx, nics[1], queues[0].vi.Number(), queues[1].vi.Number()); err != nil {
		return ports, err
	}
	for port := range flows {
		d := sender.ds[0]
		d.Prepare()
		n := copy(sender.mem.Bytes(), datagram(nics[1].Query().Address, 1000+port))
		if err := errors.Join(sender.mem.AddTo(d, 0, n), sender.vi.PostSend(d)); err != nil {
			return ports, err
		}
		if _, err := sender.vi.SendWait(ctx); err != nil {
			return ports, err
		}
		took := -1
		for took < 0 && ctx.Err() == nil {
			for i, q := range queues {
				if _, err := q.vi.RecvDone(); err == nil {
					took = i
				}
			}
		}
		if took < 0 {
			return ports, ctx.Err()
		}
		ports[took] = append(ports[took], 1000+port)
	}
	return ports, nil
}

// open makes an endpoint for raw frames with n descriptors and memory for each.
func open(ctx context.Context, nic *via.NIC, n int) (*endpoint, error) {
	vi, err := nic.CreateVI(ctx, via.VIAttributes{Frames: via.StationFrames}, nil, nil)
	if err != nil {
		return nil, err
	}
	ds, err := vi.NewDescriptors(ctx, n, 1)
	if err != nil {
		return nil, err
	}
	mem, err := nic.Alloc(ctx, n*frameSize, via.MemoryAttributes{})
	return &endpoint{vi, mem, ds}, err
}

// loadSteering loads the image flow-steer and spreads its table over two queues.
func loadSteering(ctx context.Context, nic *via.NIC, first, second uint32) error {
	spec, err := firmware.BuildShipped("flow-steer")
	if err != nil {
		return err
	}
	img, err := load.Flat(spec.Link())
	if err != nil {
		return err
	}
	if _, err := nic.LoadProgram(ctx, img, load.Options{}); err != nil {
		return err
	}
	for number, m := range spec.Maps {
		if m.Name != "queues" {
			continue
		}
		table, err := nic.ProgramMap(spec.Maps, number)
		if err != nil {
			return err
		}
		for i := range uint32(firmware.SteerQueues) {
			queue := first + i%2*(second-first)
			key, value := binary.LittleEndian.AppendUint32(nil, i), binary.LittleEndian.AppendUint32(nil, queue)
			if err := table.Update(key, value, load.Any); err != nil {
				return err
			}
		}
	}
	return nil
}

// datagram is an empty UDP datagram over IPv4 in an Ethernet frame.
func datagram(to via.MAC, sourcePort int) []byte {
	b := append(to[:], 2, 0, 0, 0, 0, 1, 0x08, 0x00)
	b = append(b, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2)
	b = binary.BigEndian.AppendUint16(b, uint16(sourcePort))
	return append(b, 0, 53, 0, 8, 0, 0)
}
