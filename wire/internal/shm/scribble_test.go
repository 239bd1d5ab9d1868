package shm_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// TestScribbled is FuzzRings with many random operations: a peer sends good frames, and now and then writes
// anything anywhere, while the port sends and receives. It has 20,000 operations, a million in a long run.
func TestScribbled(t *testing.T) {
	checkLeaks(t)
	sessions := 40
	if soak.Wanted() {
		sessions = 2000
	}
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen, Ring: 1})
	random := rand.New(rand.NewPCG(31, 500))
	for range sessions {
		var data []byte
		for range 500 {
			switch op := byte(random.IntN(3 * opCount)); {
			case op >= opCount && random.IntN(32) > 0:
				data = append(data, opShort, byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32()), opReceive, opRelease)
			case op >= opCount:
				at := random.Uint32()
				if random.IntN(2) == 0 {
					at %= 4096 + 64*128 // the words, and the first slots
				}
				data = append(data, opPoke)
				data = binary.LittleEndian.AppendUint32(data, at)
				data = binary.LittleEndian.AppendUint64(data, random.Uint64()>>random.IntN(64))
			case op == opPut:
				data = binary.LittleEndian.AppendUint64(data, random.Uint64()<<8|opPut)
			case op == opFreed:
				data = binary.LittleEndian.AppendUint32(append(data, op), random.Uint32()>>random.IntN(32))
			case op == opSend || op == opPublish:
				data = binary.LittleEndian.AppendUint16(append(data, op), uint16(random.IntN(shm.DefaultMTU)))
			case op == opCredit:
				data = binary.LittleEndian.AppendUint64(append(data, op), random.Uint64()&^0xf000) // most have words
				data = append(data, byte(random.Uint32()), 0)
			default:
				data = append(data, op)
			}
		}
		play(t, p, path, data)
	}
}

// TestSilent: a peer that does not answer, or does not end what it does, is waited for no longer than a timeout.
func TestSilent(t *testing.T) {
	checkLeaks(t)
	waittest.Together(t, map[string]func(*testing.T){
		"unexport, unanswered":        unexportUnanswered,
		"hung peer":                   hungPeer,
		"settle":                      settle,
		"connection without greeting": connectionWithoutGreeting,
	})
}
