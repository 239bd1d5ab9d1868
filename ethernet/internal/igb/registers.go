package igb

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
)

// Registers, as offsets in BAR0.
const (
	regCTRL     = 0x0000
	regSTATUS   = 0x0008
	regEECD     = 0x0010
	regCTRLEXT  = 0x0018
	regMDIC     = 0x0020
	regRCTL     = 0x0100
	regTCTL     = 0x0400
	regMDICNFG  = 0x0e04
	regPHPM     = 0x0e14
	regICR      = 0x1500
	regIMC      = 0x150c
	regGPIE     = 0x1514
	regEIMS     = 0x1524
	regEIMC     = 0x1528
	regEIAC     = 0x152c
	regEIAM     = 0x1530
	regEITR     = 0x1680 // + 4 a vector
	regIVAR     = 0x1700
	regRXCSUM   = 0x5000
	regRLPML    = 0x5004
	regMTA      = 0x5200 // 128 registers
	regRAL      = 0x5400 // pairs of low and high half
	regRAH      = 0x5404
	regVFTA     = 0x5600 // 128 registers
	regMRQC     = 0x5818
	regSWSM     = 0x5b50
	regSWFWSYNC = 0x5b5c
	regRETA     = 0x5c00 // 32 registers of four entries
	regRSSRK    = 0x5c80 // 10 registers
	regDVMOLR   = 0xc038 // + 0x40 a queue

	// Counters, which reading clears.
	regCRCERRS = 0x4000
	regRXERRC  = 0x400c
	regMPC     = 0x4010
	regRLEC    = 0x4040
	regGPRC    = 0x4074
	regGPTC    = 0x4080
	regGORCL   = 0x4088
	regGORCH   = 0x408c
	regGOTCL   = 0x4090
	regGOTCH   = 0x4094

	// Registers of a ring, from its base on; the last three are of a send ring.
	ringBaseLow  = 0x00
	ringBaseHigh = 0x04
	ringBytes    = 0x08
	ringSRRCTL   = 0x0c
	ringHead     = 0x10
	ringTXCTL    = 0x14
	ringTail     = 0x18
	ringControl  = 0x28
	ringRQDPC    = 0x30
	ringWBLow    = 0x38
	ringWBHigh   = 0x3c
)

// Bits.
const (
	ctrlMasterDisable = 1 << 2
	ctrlSLU           = 1 << 6
	ctrlForceSpeed    = 1 << 11
	ctrlForceDuplex   = 1 << 12
	ctrlReset         = 1 << 26
	ctrlVME           = 1 << 30

	ctrlExtDriverLoaded = 1 << 28

	statusFullDuplex    = 1 << 0
	statusLinkUp        = 1 << 1
	statusFunction      = 3 << 2
	statusSpeed         = 3 << 6
	statusMasterEnabled = 1 << 19

	eecdAutoRead = 1 << 9

	rctlEnable       = 1 << 1
	rctlUnicastAll   = 1 << 3
	rctlMulticastAll = 1 << 4
	rctlLong         = 1 << 5
	rctlBroadcast    = 1 << 15
	rctlVLANFilter   = 1 << 18
	rctlStripCRC     = 1 << 26

	tctlEnable    = 1 << 1
	tctlPadShort  = 1 << 3
	tctlCollision = 15<<4 | 64<<12 // retries and distance, for half duplex
	tctlRetryLate = 1 << 24

	srrctlOneBuffer = 1 << 25 // advanced descriptors, one buffer
	srrctlDrop      = 1 << 31 // a ring without descriptors does not hold up the others

	ringEnable = 1 << 25 // RXDCTL and TXDCTL
	// Thresholds of descriptors: fetch when fewer than 8 are left in the device. Received
	// ones are written back one by one, and the head of a send ring needs 0.
	receiveThresholds = 8 | 8<<8 | 1<<16
	sendThresholds    = 8 | 1<<8

	headWriteBack         = 1       // TDWBAL
	txctlRelaxedWriteBack = 1 << 11 // would let the head pass what it stands for

	rxcsumIP         = 1 << 8
	rxcsumL4         = 1 << 9
	rxcsumHashInside = 1 << 13 // the hash is in the descriptor in place of a checksum

	mrqcRSS    = 2
	mrqcFields = 1<<16 | 1<<17 | 1<<20 | 1<<21 | 1<<22 | 1<<23 // TCP and IP, version 4; IP, TCP, version 6; UDP 4; UDP 6

	rahValid    = 1 << 31
	stripCRC    = 1 << 31 // DVMOLR
	phpmNoLink  = 1 << 5
	ivarValid   = 0x80
	gpieMSIX    = 1 << 4
	gpieOneShot = 1<<0 | 1<<30 | 1<<31 // causes are cleared and masked as they are reported

	eitrKeepCounter = 1 << 31
)

const allOnes = 0xffffffff

// registers are BAR0.
type registers struct {
	f *function.Function
	function.Registers
}

// status reads STATUS, of which no device has all bits set: then it is gone. It may also be
// if none is.
func (r *registers) status() uint32 {
	v := r.Read(regSTATUS)
	switch {
	case r.Err() != nil:
	case v == allOnes:
		r.Fail(fmt.Errorf("%w: STATUS reads as all ones", ethernet.ErrDeviceGone))
	case v == 0:
		r.Fail(r.f.Present())
	}
	return v
}
