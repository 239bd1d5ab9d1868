package images

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Value of a rule of acl: an action of the hook, FilterDrop or FilterPass, and how
// many frames met the rule, which the program counts.
const (
	RuleAction    = 0 // 4 bytes, then 4 of zeros
	RuleHits      = 8 // 8 bytes
	RuleValueSize = 16
)

// Value of a flow of count.
const (
	CountFrames    = 0 // 8 bytes
	CountBytes     = 8 // 8 bytes, from the Ethernet header on
	CountValueSize = 16
)

// Flows that the maps hold. Ours: what fits a slot of 256 KiB with its table half
// empty.
const (
	aclRules     = 1024
	countedFlows = 1024
)

func aclMaps() []abi.Map {
	return []abi.Map{{Name: "rules", Type: abi.MapHash, Key: FlowKeySize, Value: RuleValueSize, Entries: aclRules}}
}

func countMaps() []abi.Map {
	return []abi.Map{
		{Name: "flows", Type: abi.MapHash, Key: FlowKeySize, Value: CountValueSize, Entries: countedFlows},
		// One value as of flows: what was of no flow, or for which there was no room.
		{Name: "rest", Type: abi.MapArray, Key: 4, Value: CountValueSize, Entries: 1},
	}
}

// lookup calls map_lookup_elem with the key of size bytes at the end of the stack.
func lookup(name string, size int32) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, 0).WithReference(name),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -size),
		call(abi.HelperMapLookup),
	}
}

func call(h abi.Helper) asm.Instruction { return asm.BuiltinFunc(h).Call() }

// accessList passes frames of which there is no rule, and those that are not of IP.
func accessList() asm.Instructions {
	code := append(frameBounds(), flowKey("pass")...)
	ready := lookup("rules", FlowKeySize)
	ready[0] = ready[0].WithSymbol("flow-ready")
	code = append(code, ready...)
	return append(code,
		note(asm.JEq.Imm(asm.R0, 0, "pass"), "no rule"),
		asm.Mov.Imm(asm.R1, 1),
		note(asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, RuleHits), "hits"),
		note(asm.LoadMem(asm.R0, asm.R0, RuleAction, asm.Word), "action"),
		asm.JNE.Imm(asm.R0, abi.FilterDrop, "pass"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, abi.FilterPass).WithSymbol("pass"),
		asm.Return(),
	)
}

// countFlows passes everything. R8 is the frame's length from where the flow's key
// is complete.
func countFlows() asm.Instructions {
	code := append(frameBounds(), flowKey("rest")...)
	ready := lookup("flows", FlowKeySize)
	ready[0] = ready[0].WithSymbol("flow-ready")
	code = append(code, ready...)
	code = append(code,
		note(asm.JNE.Imm(asm.R0, 0, "count"), "a flow that is known"),
		note(asm.StoreMem(asm.R10, -FlowKeySize-CountValueSize, asm.R0, asm.DWord), "a new one, of zeros as R0 is"),
		asm.StoreMem(asm.R10, -FlowKeySize-8, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, 0).WithReference("flows"),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -FlowKeySize),
		asm.Mov.Reg(asm.R3, asm.R10),
		asm.Add.Imm(asm.R3, -FlowKeySize-CountValueSize),
		asm.Mov.Imm(asm.R4, 0),
		call(abi.HelperMapUpdate),
	)
	code = append(code, lookup("flows", FlowKeySize)...)
	code = append(code, asm.JNE.Imm(asm.R0, 0, "count"))
	rest := asm.Instructions{
		note(asm.StoreImm(asm.R10, -4, 0, asm.Word), "no flow, or no room").WithSymbol("rest"),
	}
	rest = append(rest, lookup("rest", 4)...)
	code = append(code, rest...)
	return append(code,
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Imm(asm.R1, 1).WithSymbol("count"),
		note(asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, CountFrames), "frames"),
		asm.Sub.Reg(asm.R7, asm.R6),
		note(asm.AddAtomic.Mem(asm.R0, asm.R7, asm.DWord, CountBytes), "bytes"),
		asm.Mov.Imm(asm.R0, abi.FilterPass).WithSymbol("pass"),
		asm.Return(),
	)
}
